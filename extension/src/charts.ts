import { make, setAttribute, setChildren, setText } from "./dom";
import type { Mark, Metric, Point } from "./model";

const SVG = "http://www.w3.org/2000/svg";

/**
 * A small chart of each metric: a line for the mean over the ranks, a band from the minimum to the maximum, and a mark
 * where a value is not finite.
 */
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
  #facts = make("div", "na-facts");
  #drawn: Metric | undefined;

  constructor(name: string) {
    this.#picture.setAttribute("viewBox", "0 0 1000 1000");
    this.#picture.setAttribute("preserveAspectRatio", "none");
    this.#picture.setAttribute("role", "img");
    const label = make("span", "na-key", { title: name }, name);
    const top = make("div", "na-chart-head", {}, label, this.#now);
    this.element = make("div", "na-chart", { "data-metric": name }, top, this.#picture, this.#range, this.#facts);
  }

  update(name: string, metric: Metric): void {
    if (metric === this.#drawn) return;
    this.#drawn = metric;
    setText(this.#now, metric.now);
    setText(this.#range, metric.range);
    setChildren(
      this.#facts,
      metric.facts.map((fact) => make("div", "na-fact", { title: fact }, fact)),
    );
    const words = [metric.range && `over ranks ${metric.range}`, ...metric.facts].filter(Boolean);
    setAttribute(this.#picture, "aria-label", [`${name}: ${metric.now}`, ...words].join(", "));
    const isAlone = metric.segments.length === 1 && metric.segments[0]?.length === 1;
    const lines = metric.segments.flatMap((points) => drawSegment(points, isAlone ? 1000 : 8));
    this.#picture.replaceChildren(...lines, ...metric.marks.map(drawMark));
  }
}

/** The band and the line of points that have no gap between them; a single point is a level line, `width` to each side. */
function drawSegment(points: Point[], width: number): SVGElement[] {
  const upper = points.map(([x, , , high]) => `${x},${1000 - high}`);
  const lower = points.map(([x, , low]) => `${x},${1000 - low}`).reverse();
  const ends = (x: number) => (points.length > 1 ? [x] : [Math.max(0, x - width), Math.min(1000, x + width)]);
  const line = points.flatMap(([x, mean]) => ends(x).map((end) => `${end},${1000 - mean}`));
  return [
    draw("polygon", "na-band", { points: [...upper, ...lower].join(" ") }),
    draw("polyline", "na-mean", { points: line.join(" ") }),
  ];
}

/** A line over the whole height for NaN, a short one at the top or at the bottom for infinity. */
function drawMark([x, kind]: Mark): SVGElement {
  const from = kind === -1 ? 800 : 0;
  const to = kind === 1 ? 200 : 1000;
  return draw("polyline", kind === 0 ? "na-unusual na-nan" : "na-unusual", { points: `${x},${from} ${x},${to}` });
}

function draw(tag: string, className: string, attributes: Record<string, string>): SVGElement {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries({ class: className, ...attributes })) element.setAttribute(name, value);
  return element;
}
