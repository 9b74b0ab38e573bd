import { make, setAttribute, setText } from "../dom";
import type { Metric } from "../model";
import { linesOf } from "./lines";
import { formatStep, formatValue } from "./numbers";
import { Plot } from "./plot";
import { ofMetric } from "./table";

const HEIGHT = 104;

/** A chart among others: a line for the mean over the ranks, and a band from the minimum to the maximum. */
export class SmallChart {
  readonly element: HTMLElement;
  readonly plot: Plot;
  #now = make("span", "na-value");
  /** The value under the crosshair, which covers the others, so that nothing moves below the pointer. */
  #past = make("span", "na-past");
  #values: HTMLElement;
  #picture: HTMLElement;
  #facts = make("div", "na-facts");
  #enlarge: HTMLButtonElement;
  #name: string;
  #metric: Metric | undefined;
  #drawn: Metric | undefined;

  /**
   * @param sync The key that charts share whose crosshairs move together.
   * @param onEnlarge Called when the user enlarges the chart.
   */
  constructor(name: string, sync: string, onEnlarge: () => void) {
    this.#name = name;
    this.#picture = make("div", "na-plot", { role: "img" });
    this.#picture.addEventListener("click", onEnlarge);
    this.#enlarge = make("button", "na-icon na-enlarge", { type: "button" }, "⤢");
    setAttribute(this.#enlarge, "aria-label", `Enlarge ${name}`);
    setAttribute(this.#enlarge, "aria-expanded", "false");
    this.#enlarge.addEventListener("click", onEnlarge);
    const label = make("span", "na-key", { title: name }, name);
    const top = make("div", "na-chart-head", {}, label, this.#enlarge);
    this.#values = make("div", "na-chart-now", {}, this.#now, this.#facts, this.#past);
    this.element = make("div", "na-chart", { "data-metric": name }, top, this.#values, this.#picture);
    const space = { x: 44, y: 26 };
    this.plot = new Plot(this.#picture, { height: HEIGHT, space, sync, onHover: (at) => this.#read(at) });
  }

  /** Sets the texts, but not the picture. */
  update(metric: Metric): void {
    if (metric === this.#metric) return;
    this.#metric = metric;
    // A single value is a number, not a course.
    const isSingle = metric.x.length + metric.marks.length === 1;
    this.#picture.hidden = isSingle;
    this.#enlarge.hidden = isSingle;
    setText(this.#now, metric.now);
    const facts = [metric.range, ...metric.facts].filter(Boolean);
    setText(this.#facts, metric.brief);
    setAttribute(this.element, "title", [`${this.#name}: ${metric.now}`, ...facts].join("\n"));
    setAttribute(this.#picture, "aria-label", [`${this.#name}: ${metric.now}`, ...facts].join(", "));
  }

  /** Draws the picture if it is not up to date; returns whether that took time. */
  draw(): boolean {
    if (this.#metric === undefined || this.#metric === this.#drawn) return false;
    const table = ofMetric(this.#name, this.#metric);
    const lines = linesOf([table], { byRank: false, smoothing: 0, log: false });
    const isDrawn = this.plot.draw({ lines, marks: table.marks, range: table.extent, log: false });
    if (isDrawn) this.#drawn = this.#metric;
    return isDrawn;
  }

  set isEnlarged(value: boolean) {
    setAttribute(this.#enlarge, "aria-expanded", String(value));
    setAttribute(this.element, "data-enlarged", value ? "" : null);
  }

  focus(): void {
    this.#enlarge.focus();
  }

  destroy(): void {
    this.plot.destroy();
    this.element.remove();
  }

  /** Shows the value under the crosshair, or the last one. */
  #read(index: number | null): void {
    const step = index === null ? undefined : this.plot.steps()[index];
    const value = index === null ? null : this.plot.valueAt(0, index);
    const isPast = step !== undefined && value !== null;
    setAttribute(this.#values, "data-past", isPast ? "" : null);
    setText(this.#past, isPast ? `${formatValue(value)} at ${formatStep(step)}` : "");
  }
}
