/** The sidebar: the devices and the user's jobs, live while it is visible. */
import type { Message } from "@lumino/messaging";
import { Widget } from "@lumino/widgets";
import { make, setChildren, setText } from "../../src/dom";
import { DeviceSection } from "./deviceSection";
import { Devices } from "./devices";
import { jobsIcon } from "./icons";
import { type JobActions, JobItem } from "./jobItem";
import type { Jobs } from "./jobs";
import type { JobRow } from "./model";

const WATCHER = { pause: 1000, brief: false };
/** As `MOST` in comparisons.py. */
const MOST_COMPARED = 8;
const NONE = "No job has been launched yet. A launch with notebook_launcher or %%accelerate appears here.";

export interface SidebarActions extends Omit<JobActions, "choose"> {
  /** Compares jobs. */
  compare(rows: JobRow[]): void;
}

export class Sidebar extends Widget {
  private readonly list = make("ul", "na-lab-jobs");
  private readonly message = make("p", "na-lab-message", { role: "status" });
  private readonly items = new Map<string, JobItem>();
  private readonly devices: DeviceSection;
  private readonly chosen = new Map<string, JobRow>();
  private readonly compare = make("button", "na-lab-button jp-mod-styled", { type: "button" });
  private readonly itemActions: JobActions;

  constructor(
    private readonly jobs: Jobs,
    actions: SidebarActions,
  ) {
    super();
    this.id = "notebook-accel-jobs";
    this.addClass("na-lab-sidebar");
    this.title.icon = jobsIcon;
    this.title.caption = "Jobs of notebook-accel";
    this.node.setAttribute("role", "region");
    this.node.setAttribute("aria-label", "Jobs of notebook-accel");
    this.devices = new DeviceSection(new Devices(), jobs);
    this.node.append(this.devices.element);
    this.itemActions = { ...actions, choose: (row, isChosen) => this.choose(row, isChosen) };
    this.compare.addEventListener("click", () => actions.compare([...this.chosen.values()]));
    const heading = make("div", "na-lab-jobs-head", {}, make("h2", "na-lab-name", {}, "Jobs"), this.compare);
    this.node.append(heading, this.message, this.list);
    this.drawCompare();
    jobs.changed.connect(() => this.draw());
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
    this.drawCompare();
  }

  private drawCompare(): void {
    const count = this.chosen.size;
    setText(this.compare, count ? `Compare (${count})` : "Compare");
    this.compare.disabled = count < 2 || count > MOST_COMPARED;
    this.compare.title =
      count > MOST_COMPARED
        ? `At most ${MOST_COMPARED} jobs fit on one chart`
        : "Draw a metric of the jobs that you have ticked on one chart";
  }

  private draw(): void {
    if (!this.isVisible) return;
    const { rows, problem, known } = this.jobs;
    setText(this.message, problem || (known && !rows.length ? NONE : ""));
    this.message.hidden = !this.message.textContent;
    this.message.classList.toggle("na-lab-problem", problem !== "");
    const present = new Set(rows.map((row) => row.id));
    for (const id of [...this.items.keys()]) if (!present.has(id)) this.items.delete(id);
    for (const id of [...this.chosen.keys()]) if (!present.has(id)) this.chosen.delete(id);
    this.drawCompare();
    const elements = rows.map((row) => {
      const item = this.items.get(row.id) ?? new JobItem(row, this.itemActions);
      this.items.set(row.id, item);
      item.update(row);
      return item.element;
    });
    setChildren(this.list, elements);
  }
}
