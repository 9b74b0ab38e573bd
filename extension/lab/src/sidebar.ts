/** The sidebar: the devices and the user's jobs, live while it is visible. */
import type { Message } from "@lumino/messaging";
import { Widget } from "@lumino/widgets";
import { make, setChildren, setText } from "../../src/dom";
import { DeviceSection } from "./deviceSection";
import { Devices } from "./devices";
import { jobsIcon } from "./icons";
import { type JobActions, JobItem } from "./jobItem";
import type { Jobs } from "./jobs";

const WATCHER = { pause: 1000, brief: false };
const NONE = "No job has been launched yet. A launch with notebook_launcher or %%accelerate appears here.";

export class Sidebar extends Widget {
  private readonly list = make("ul", "na-lab-jobs");
  private readonly message = make("p", "na-lab-message", { role: "status" });
  private readonly items = new Map<string, JobItem>();
  private readonly devices: DeviceSection;

  constructor(
    private readonly jobs: Jobs,
    private readonly actions: JobActions,
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
    this.node.append(make("h2", "na-lab-name", {}, "Jobs"), this.message, this.list);
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

  private draw(): void {
    if (!this.isVisible) return;
    const { rows, problem, known } = this.jobs;
    setText(this.message, problem || (known && !rows.length ? NONE : ""));
    this.message.hidden = !this.message.textContent;
    this.message.classList.toggle("na-lab-problem", problem !== "");
    const present = new Set(rows.map((row) => row.id));
    for (const id of [...this.items.keys()]) if (!present.has(id)) this.items.delete(id);
    const elements = rows.map((row) => {
      const item = this.items.get(row.id) ?? new JobItem(row, this.actions);
      this.items.set(row.id, item);
      item.update(row);
      return item.element;
    });
    setChildren(this.list, elements);
  }
}
