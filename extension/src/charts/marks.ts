import type uPlot from "uplot";
import type { Mark } from "../model";

/** NaNs that are less far apart, in pixels, are drawn as one area. */
const CLOSE = 4;

/** The NaNs from one step to another one. */
export interface Span {
  from: number;
  to: number;
}

/** Joins NaNs that are close to each other. `close` is a number of steps. */
export function spansOf(marks: Mark[], close: number): Span[] {
  const spans: Span[] = [];
  for (const [step, kind] of marks) {
    if (kind !== 0) continue;
    const last = spans.at(-1);
    if (last !== undefined && step - last.to <= close && step >= last.to) last.to = step;
    else spans.push({ from: step, to: step });
  }
  return spans;
}

/** Draws a dashed line over the whole height for NaN, and a short one at the top or at the bottom for infinity. */
export function drawMarks(plot: uPlot, marks: Mark[], color: string): void {
  if (marks.length === 0) return;
  const { ctx, bbox } = plot;
  const scale = devicePixelRatio;
  const at = (step: number) => plot.valToPos(step, "x", true);
  const line = (x: number, from: number, to: number) => {
    ctx.beginPath();
    ctx.moveTo(x, bbox.top + from * bbox.height);
    ctx.lineTo(x, bbox.top + to * bbox.height);
    ctx.stroke();
  };
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  ctx.strokeStyle = ctx.fillStyle = color;
  ctx.lineWidth = 1.5 * scale;
  for (const [step, kind] of marks) {
    if (kind !== 0) line(at(step), kind === -1 ? 0.8 : 0, kind === 1 ? 0.2 : 1);
  }
  ctx.setLineDash([3 * scale, 2 * scale]);
  const { min = 0, max = 1 } = plot.scales.x as { min?: number; max?: number };
  for (const { from, to } of spansOf(marks, ((max - min) / bbox.width) * CLOSE * scale)) {
    line(at(from), 0, 1);
    if (from === to) continue;
    line(at(to), 0, 1);
    ctx.globalAlpha = 0.14;
    ctx.fillRect(at(from), bbox.top, at(to) - at(from), bbox.height);
    ctx.globalAlpha = 1;
  }
  ctx.restore();
}
