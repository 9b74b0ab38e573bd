import { make, setAttribute, setText } from "../dom";
import type { Metric } from "../model";
import { linesOf } from "./lines";
import { formatValue } from "./numbers";
import { type Content, Plot } from "./plot";
import { ofMetric } from "./table";
import { spanText } from "./tooltip";

const HEIGHT = 104;

/** What a small chart shows. */
export interface Shown {
  content: Content;
  /** The last value; empty if there are several lines. */
  now: string;
  /** What matters most beside it. */
  brief: string;
  facts: string[];
  /** Whether there are values at one step only: a number rather than a course. */
  isSingle: boolean;
}

/** A line for the mean over the ranks, and a band from the minimum to the maximum. */
export function shownOf(name: string, metric: Metric): Shown {
  const table = ofMetric(name, metric);
  const lines = linesOf([table], { byRank: false, smoothing: 0, log: false });
  return {
    content: { lines, marks: table.marks, range: table.extent, log: false },
    now: metric.now,
    brief: metric.brief,
    facts: [metric.range, ...metric.facts].filter(Boolean),
    isSingle: metric.x.length + metric.marks.length === 1,
  };
}

/** A chart among others, which can be enlarged. */
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
  #source: object | undefined;
  #shown: Shown | undefined;
  #drawn: Shown | undefined;

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

  /**
   * Sets the texts, but not the picture.
   *
   * @param source What is shown; nothing changes as long as it is the same object.
   * @param show Makes of it what is drawn.
   */
  update(source: object, show: () => Shown): void {
    if (source === this.#source) return;
    this.#source = source;
    const shown = show();
    this.#shown = shown;
    setAttribute(this.element, "data-single", shown.isSingle ? "" : null);
    setText(this.#now, shown.now);
    setText(this.#facts, shown.brief);
    this.#values.hidden = !shown.now && !shown.brief;
    const first = shown.now ? `${this.#name}: ${shown.now}` : this.#name;
    setAttribute(this.element, "title", [first, ...shown.facts].join("\n"));
    setAttribute(this.#picture, "aria-label", [first, ...shown.facts].join(", "));
  }

  /** Draws the picture if it is not up to date; returns whether that took time. */
  draw(): boolean {
    if (this.#shown === undefined || this.#shown === this.#drawn) return false;
    const isDrawn = this.plot.draw(this.#shown.content);
    if (isDrawn) this.#drawn = this.#shown;
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
    const isPast = step !== undefined && value !== null && this.#shown?.now !== "";
    setAttribute(this.#values, "data-past", isPast ? "" : null);
    setText(this.#past, isPast ? `${formatValue(value)} at ${spanText(this.#shown?.content.lines ?? [], step)}` : "");
  }
}
