/** The chart of a comparison: a line for each job, drawn with the panel's code for charts. */
import { type Line, type Scale, smoothedLine } from "../../src/charts/lines";
import { Plot } from "../../src/charts/plot";
import { entriesAt, stepText, Tooltip } from "../../src/charts/tooltip";
import { make, setAttribute } from "../../src/dom";
import type { Comparison, Run } from "./model";
import { RunTable } from "./runTable";

const HEIGHT = 420;

export class ComparisonChart {
  readonly element: HTMLElement;
  private readonly runs: RunTable;
  private look: Scale = { log: false, smoothing: 0 };
  private readonly tooltip = new Tooltip();
  private readonly frame = make("div", "na-plot", { role: "img" }, this.tooltip.element);
  private readonly plot: Plot;
  private readonly resizes = new ResizeObserver(() => this.draw());
  private shown: Comparison | undefined;
  private lines: Line[] = [];

  /** @param edit - Asks for another name, notes, and a pin of a job. */
  constructor(edit: (job: string) => void) {
    this.runs = new RunTable(() => this.redraw(), edit);
    this.element = make("div", "na-lab-chart", {}, this.frame, this.runs.element);
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
    this.lines = linesOf(this.shown, this.look, (run) => this.runs.shows(run));
    this.draw();
  }

  dispose(): void {
    this.resizes.disconnect();
    this.plot.destroy();
  }

  private draw(): void {
    if (!this.shown) return;
    const steps = this.lines.flatMap(({ x }) => x);
    const range: [number, number] = steps.length ? [minimum(steps), maximum(steps)] : [0, 1];
    this.plot.draw({ lines: this.lines, marks: [], range, log: this.look.log });
    const last = this.lines
      .filter(({ label }) => label)
      .map(({ label, x, y }) => `${label}: ${x.length ? `${y.at(-1) ?? "not finite"}` : "nothing"}`);
    setAttribute(
      this.frame,
      "aria-label",
      `${this.shown.metric} of ${last.length} jobs. Last values: ${last.join(", ")}`,
    );
  }

  private hover(index: number | null): void {
    const step = index === null ? undefined : this.plot.steps()[index];
    if (index === null || step === undefined) {
      this.tooltip.hide();
      return;
    }
    const entries = entriesAt(this.lines, this.plot, index);
    const unit = this.shown?.runs.every((run) => run.by_step) ? "step" : "report";
    this.tooltip.show(stepText(unit, step, []), entries, this.plot.leftOf(index));
  }
}

/** The lines, each in the color of its place in the comparison; the IDs tell jobs of one name and one minute apart. */
export function linesOf({ runs }: Comparison, look: Scale, shows: (run: Run) => boolean): Line[] {
  return runs.flatMap((run, color) => {
    if (!shows(run)) return [];
    const isShared = runs.some((other) => other !== run && other.label === run.label);
    const label = isShared ? `${run.label} (${run.id})` : run.label;
    return smoothedLine({ label, color, x: run.x, y: run.mean, band: undefined, style: "normal" }, look);
  });
}

function minimum(values: number[]): number {
  return values.reduce((one, other) => Math.min(one, other));
}

function maximum(values: number[]): number {
  return values.reduce((one, other) => Math.max(one, other));
}
