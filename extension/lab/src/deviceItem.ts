/** One device in the sidebar. */
import { make, setAttribute, setChildren, setText } from "../../src/dom";
import type { Device, Gauge } from "./model";
import { Sparkline } from "./sparkline";

export class DeviceItem {
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
