import { make, setAttribute, setText } from "./dom";
import type { Metric } from "./model";

const SVG = "http://www.w3.org/2000/svg";

/** A small chart of each metric: a line for the mean over the ranks, and a band from the minimum to the maximum. */
export class Charts {
  readonly element = make("div", "na-charts", { role: "group", "aria-label": "Metrics" });
  #charts = new Map<string, Chart>();
  #note = make("div", "na-more");
  #drawn: Record<string, Metric> | undefined;

  constructor() {
    this.element.append(this.#note);
  }

  update(metrics: Record<string, Metric>, note: string): void {
    setText(this.#note, note);
    if (metrics === this.#drawn) return;
    this.#drawn = metrics;
    for (const [name, metric] of Object.entries(metrics)) {
      let chart = this.#charts.get(name);
      if (chart === undefined) {
        chart = new Chart(name);
        this.#charts.set(name, chart);
        this.#note.before(chart.element);
      }
      chart.update(name, metric);
    }
    this.element.hidden = this.#charts.size === 0;
  }
}

class Chart {
  readonly element: HTMLElement;
  #now = make("span", "na-value");
  #range = make("span", "na-range", { title: "Minimum and maximum over the ranks" });
  #picture = document.createElementNS(SVG, "svg");
  #band = document.createElementNS(SVG, "polygon");
  #mean = document.createElementNS(SVG, "polyline");
  #drawn: Metric | undefined;

  constructor(name: string) {
    this.#picture.setAttribute("viewBox", "0 0 1000 1000");
    this.#picture.setAttribute("preserveAspectRatio", "none");
    this.#picture.setAttribute("role", "img");
    this.#band.setAttribute("class", "na-band");
    this.#mean.setAttribute("class", "na-mean");
    this.#picture.append(this.#band, this.#mean);
    const label = make("span", "na-key", { title: name }, name);
    const top = make("div", "na-chart-head", {}, label, this.#now);
    this.element = make("div", "na-chart", { "data-metric": name }, top, this.#picture, this.#range);
  }

  update(name: string, metric: Metric): void {
    if (metric === this.#drawn) return;
    this.#drawn = metric;
    setText(this.#now, metric.now);
    setText(this.#range, metric.range);
    setAttribute(
      this.#picture,
      "aria-label",
      `${name}: ${metric.now}${metric.range && `, over ranks ${metric.range}`}`,
    );
    const points = metric.points;
    const upper = points.map(([x, , , high]) => `${x},${1000 - high}`);
    const lower = points.map(([x, , low]) => `${x},${1000 - low}`).reverse();
    this.#band.setAttribute("points", [...upper, ...lower].join(" "));
    // A line through a single point would be invisible, so draw it across the whole width.
    const mean = points.length === 1 ? [points[0], points[0]] : points;
    const line = mean.map((point, at) => `${points.length === 1 ? at * 1000 : point?.[0]},${1000 - (point?.[1] ?? 0)}`);
    this.#mean.setAttribute("points", line.join(" "));
  }
}
