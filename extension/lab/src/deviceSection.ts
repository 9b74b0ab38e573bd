/** The devices in the sidebar: a section that can be closed, and is live while it is open and visible. */
import { make, setChildren, setText } from "../../src/dom";
import { DeviceItem } from "./deviceItem";
import type { Devices } from "./devices";
import type { Jobs } from "./jobs";

export class DeviceSection {
  readonly element: HTMLDetailsElement;
  private readonly message = make("p", "na-lab-message na-lab-problem", { role: "status" });
  private readonly list = make("ul", "na-lab-devices");
  private readonly items = new Map<string, DeviceItem>();
  private isVisible = false;

  constructor(
    private readonly devices: Devices,
    private readonly jobs: Jobs,
  ) {
    const heading = make("summary", "na-lab-summary-line", {}, make("h2", "na-lab-name", {}, "Devices"));
    this.element = make("details", "na-lab-section", { open: "" }, heading, this.message, this.list);
    this.message.hidden = true;
    this.element.addEventListener("toggle", () => this.watch());
    devices.changed.connect(() => this.draw());
    jobs.changed.connect(() => this.draw());
  }

  /** Whether the sidebar is visible. */
  show(isVisible: boolean): void {
    this.isVisible = isVisible;
    this.watch();
  }

  private watch(): void {
    this.devices.watch(this.isVisible && this.element.open);
  }

  private draw(): void {
    if (!this.isVisible || !this.element.open) return;
    const { all, problem } = this.devices;
    setText(this.message, problem);
    this.message.hidden = problem === "";
    const present = new Set(all.map((device) => device.id));
    for (const id of [...this.items.keys()]) if (!present.has(id)) this.items.delete(id);
    const elements = all.map((device) => {
      const item = this.items.get(device.id) ?? new DeviceItem();
      this.items.set(device.id, item);
      item.update(device, this.jobsOn(device.id));
      return item.element;
    });
    setChildren(this.list, elements);
  }

  private jobsOn(device: string): string[] {
    return this.jobs.rows.filter((row) => row.live).flatMap((row) => row.devices[device] ?? []);
  }
}
