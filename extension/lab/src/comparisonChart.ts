/** The charts of a comparison, with a line for each job: one in detail, and a small one of each metric. */
import { type Line, type Scale, smoothedLine } from "../../src/charts/lines";
import { formatValue } from "../../src/charts/numbers";
import { type Content, Plot } from "../../src/charts/plot";
import { SmallChart } from "../../src/charts/smallChart";
import { positions, spansOf } from "../../src/charts/table";
import { entriesAt, stepTitle, Tooltip } from "../../src/charts/tooltip";
import { make, newId, setAttribute, setChildren } from "../../src/dom";
import type { Comparison, Run } from "./model";
import { RunTable } from "./runTable";

const HEIGHT = 380;

export class ComparisonChart {
  readonly element: HTMLElement;
  private readonly runs: RunTable;
  private look: Scale = { log: false, smoothing: 0 };
  private readonly tooltip = new Tooltip();
  private readonly frame = make("div", "na-plot", { role: "img" }, this.tooltip.element);
  private readonly plot: Plot;
  private readonly tiles = make("div", "na-charts", { role: "group", "aria-label": "Small charts" });
  private readonly small = new Map<string, SmallChart>();
  private readonly sync = newId();
  private readonly resizes = new ResizeObserver(() => this.draw());
  private shown: Comparison | undefined;
  private lines: Line[] = [];

  /**
   * @param edit - Asks for another name, notes, and a pin of a job.
   * @param choose - Draws another metric in detail.
   */
  constructor(
    edit: (job: string) => void,
    private readonly choose: (metric: string) => void,
  ) {
    this.runs = new RunTable(() => this.redraw(), edit);
    this.element = make("div", "na-lab-chart", {}, this.frame, this.runs.element, this.tiles);
    const space = { x: 70, y: 36 };
    const onHover = (index: number | null) => this.hover(index);
    this.plot = new Plot(this.frame, { height: HEIGHT, space, onHover });
    this.resizes.observe(this.frame); // which may have no room yet
  }

  update(comparison: Comparison): void {
    this.shown = comparison;
    this.runs.update(comparison.runs);
    this.redraw();
  }

  /** Changes how the lines are drawn. */
  set(look: Scale): void {
    this.look = look;
    this.redraw();
  }

  private redraw(): void {
    if (!this.shown) return;
    this.lines = this.linesOf(this.shown.metric);
    this.layOut();
    this.draw();
  }

  dispose(): void {
    this.resizes.disconnect();
    this.plot.destroy();
    for (const chart of this.small.values()) chart.destroy();
  }

  private linesOf(metric: string): Line[] {
    return linesOf(this.shown?.runs ?? [], metric, this.look, (run) => this.runs.shows(run));
  }

  private draw(): void {
    if (!this.shown) return;
    this.plot.draw(contentOf(this.lines, this.look));
    const { metric } = this.shown;
    setAttribute(this.frame, "aria-label", [metric, ...lastValues(this.lines)].join(", "));
    for (const chart of this.small.values()) chart.draw();
  }

  /** Adds and removes small charts; one metric needs none. */
  private layOut(): void {
    const { names, runs, metric } = this.shown as Comparison;
    const drawn = names.length > 1 ? names.filter((name) => runs.some((run) => name in run.curves)) : [];
    for (const [name, chart] of this.small) {
      if (drawn.includes(name)) continue;
      chart.destroy();
      this.small.delete(name);
    }
    for (const name of drawn) {
      const chart = this.small.get(name) ?? new SmallChart(name, this.sync, () => this.choose(name));
      this.small.set(name, chart);
      chart.isEnlarged = name === metric;
      const lines = this.linesOf(name);
      const content = contentOf(lines, this.look);
      chart.update(content, () => ({ content, now: "", brief: "", facts: lastValues(lines), isSingle: false }));
    }
    setChildren(
      this.tiles,
      drawn.map((name) => (this.small.get(name) as SmallChart).element),
    );
    this.tiles.hidden = drawn.length === 0;
  }

  private hover(index: number | null): void {
    const step = index === null ? undefined : this.plot.steps()[index];
    if (index === null || step === undefined || !this.shown) {
      this.tooltip.hide();
      return;
    }
    const { runs, metric } = this.shown;
    const entries = entriesAt(this.lines, this.plot, index);
    const unit = runs.every((run) => run.curves[metric]?.by_step ?? true) ? "step" : "report";
    this.tooltip.show(stepTitle(unit, this.lines, step), entries, this.plot.leftOf(index));
  }
}

/** The lines of a metric, each in the color of its job's place in the comparison. */
export function linesOf(runs: Run[], metric: string, look: Scale, shows: (run: Run) => boolean): Line[] {
  return runs.flatMap((run, color) => {
    const curve = run.curves[metric];
    if (!curve || !shows(run)) return [];
    const spans = spansOf(curve);
    const line: Line = {
      label: run.label,
      color,
      x: positions(spans),
      spans,
      y: curve.mean,
      band: undefined,
      style: "normal",
    };
    return smoothedLine(line, look);
  });
}

function contentOf(lines: Line[], { log }: Scale): Content {
  const steps = lines.flatMap(({ x }) => x);
  const range: [number, number] = steps.length
    ? [steps.reduce((one, other) => Math.min(one, other)), steps.reduce((one, other) => Math.max(one, other))]
    : [0, 1];
  return { lines, marks: [], range, log };
}

/** The last value of each job. */
function lastValues(lines: Line[]): string[] {
  return lines.filter(({ label }) => label).map(({ label, y }) => `${label}: ${formatValue(y.at(-1) ?? Number.NaN)}`);
}
