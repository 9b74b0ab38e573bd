/** The devices in the sidebar: a section that can be closed, and is live while it is open and visible. */
import { make, setAttribute, setChildren, setText } from "../../src/dom";
import type { Devices } from "./devices";
import type { Jobs } from "./jobs";
import type { Device, Gauge } from "./model";
import { Sparkline } from "./sparkline";

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

/** One device. */
class DeviceItem {
  readonly element = make("li", "na-lab-device");
  private readonly title = make("div", "na-lab-title");
  private readonly gauges = make("ul", "na-lab-gauges");
  private readonly drawn = new Map<string, GaugeItem>();
  private readonly jobs = make("div", "na-lab-device-jobs");
  private readonly warning = make("div", "na-lab-warning", { role: "status" });

  constructor() {
    this.element.append(this.title, this.gauges);
  }

  /** @param jobs - The ranks that are on the device, a line for each job. */
  update(device: Device, jobs: string[]): void {
    setAttribute(this.element, "data-device", device.id);
    setText(this.title, device.title);
    this.title.title = device.title;
    const items = device.gauges.map((gauge) => {
      const item = this.drawn.get(gauge.name) ?? new GaugeItem();
      this.drawn.set(gauge.name, item);
      item.update(gauge, device.title);
      return item.element;
    });
    setChildren(this.gauges, items);
    setText(this.jobs, jobs.join("\n"));
    setText(this.warning, device.warning);
    setChildren(this.element, [
      this.title,
      this.gauges,
      ...(jobs.length ? [this.jobs] : []),
      ...(device.warning ? [this.warning] : []),
    ]);
  }
}

class GaugeItem {
  readonly element = make("li", "na-lab-gauge");
  private readonly name = make("span", "na-lab-gauge-name");
  private readonly value = make("span", "na-lab-gauge-value");
  private readonly spark = new Sparkline();

  constructor() {
    setAttribute(this.spark.element, "preserveAspectRatio", "none"); // as wide as the gauge
    this.element.append(make("div", "na-lab-gauge-text", {}, this.name, this.value), this.spark.element);
  }

  update(gauge: Gauge, device: string): void {
    setText(this.name, gauge.name);
    setText(this.value, gauge.value);
    this.spark.update(`${gauge.name} of ${device} over the last five minutes, now ${gauge.value}`, gauge.lines);
  }
}
