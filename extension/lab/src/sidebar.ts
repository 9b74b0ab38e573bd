/** The sidebar: the devices and the user's jobs, live while it is visible. */
import type { Message } from "@lumino/messaging";
import { Widget } from "@lumino/widgets";
import { render } from "lit-html";
import { repeat } from "lit-html/directives/repeat.js";
import { matches, searchField } from "../../src/search";
import { html } from "../../src/template";
import { DeviceSection } from "./deviceSection";
import { jobsIcon } from "./icons";
import { type JobActions, jobItem } from "./jobItem";
import type { Jobs } from "./jobs";
import type { JobRow } from "./model";

const WATCHER = { pause: 1000, brief: false };
/** As `MOST` in comparisons.py. */
const MOST_COMPARED = 8;
const NONE = "No job has been launched yet. A launch with notebook_launcher or %%accelerate appears here.";
const NO_MATCH = "No job has all of these words.";

export interface SidebarActions extends Omit<JobActions, "choose"> {
  /** Compares jobs. */
  compare(rows: JobRow[]): void;
}

export class Sidebar extends Widget {
  private readonly devices: DeviceSection;
  private readonly chosen = new Map<string, JobRow>();
  private search = "";

  constructor(
    private readonly jobs: Jobs,
    private readonly actions: SidebarActions,
  ) {
    super();
    this.id = "notebook-accel-jobs";
    this.addClass("na-lab-sidebar");
    this.title.icon = jobsIcon;
    this.title.caption = "Training jobs";
    this.node.setAttribute("role", "region");
    this.node.setAttribute("aria-label", "Training jobs");
    this.devices = new DeviceSection(jobs);
    this.draw();
    jobs.changed.connect(() => {
      if (this.isVisible) this.draw();
    });
  }

  protected override onAfterShow(message: Message): void {
    super.onAfterShow(message);
    this.setLive(true);
  }

  protected override onAfterAttach(message: Message): void {
    super.onAfterAttach(message);
    if (this.isVisible) this.setLive(true);
  }

  protected override onAfterHide(message: Message): void {
    super.onAfterHide(message);
    this.setLive(false);
  }

  protected override onBeforeDetach(message: Message): void {
    super.onBeforeDetach(message);
    this.setLive(false);
  }

  private setLive(isLive: boolean): void {
    if (isLive) this.jobs.watch(this.id, WATCHER);
    else this.jobs.unwatch(this.id);
    this.devices.show(isLive);
  }

  private choose(row: JobRow, isChosen: boolean): void {
    if (isChosen) this.chosen.set(row.id, row);
    else this.chosen.delete(row.id);
    this.draw();
  }

  private draw(): void {
    const { rows, problem, known } = this.jobs;
    const present = new Set(rows.map((row) => row.id));
    for (const id of [...this.chosen.keys()]) if (!present.has(id)) this.chosen.delete(id);
    const count = this.chosen.size;
    const hint =
      count > MOST_COMPARED
        ? `At most ${MOST_COMPARED} jobs fit on one chart`
        : "Draw the metrics of the selected jobs on one chart";
    const found = rows.filter((row) =>
      matches(this.search, [row.title, row.state, row.notes, row.details, row.notebook]),
    );
    const message = problem || (known && !rows.length ? NONE : rows.length && !found.length ? NO_MATCH : "");
    const onSearch = (search: string) => {
      this.search = search;
      this.draw();
    };
    const actions = { ...this.actions, choose: (row: JobRow, isChosen: boolean) => this.choose(row, isChosen) };
    const items = repeat(
      [...found.filter((row) => row.pinned), ...found.filter((row) => !row.pinned)],
      (row) => row.id,
      (row) => jobItem(row, this.chosen.has(row.id), actions),
    );
    render(
      html`${this.devices.element}
      <div class="na-lab-jobs-head">
        <h2 class="na-lab-name">Jobs</h2>
        <button type="button" class="na-lab-button jp-mod-styled" title=${hint}
          ?disabled=${count < 2 || count > MOST_COMPARED}
          @click=${() => this.actions.compare([...this.chosen.values()])}>${count ? `Compare (${count})` : "Compare"}</button>
      </div>
      <div class="na-lab-search" ?hidden=${!rows.length}>${searchField("Filter jobs", onSearch)}</div>
      <p class="na-lab-message ${problem ? "na-lab-problem" : ""}" role="status" ?hidden=${!message}>${message}</p>
      <ul class="na-lab-jobs">${items}</ul>`,
      this.node,
    );
  }
}
