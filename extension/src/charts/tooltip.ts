import { nothing, render } from "lit-html";
import { make } from "../dom";
import { html } from "../template";
import type { Line } from "./lines";
import { formatStep, formatValue } from "./numbers";
import { colorOf } from "./palette";
import type { Plot } from "./plot";

/** The most lines whose values are listed. */
const MOST_ENTRIES = 10;

export interface Entry {
  label: string;
  color: number;
  value: number | null;
  /** The step of the value, or the range of its steps, if it is not the one at the crosshair. */
  at: string | undefined;
  /** The minimum and maximum; `undefined` if the line has no band. */
  band: [number, number] | undefined;
  /** The value of the smoothed line; `undefined` if it is not smoothed. */
  smoothed: number | undefined;
}

/** The values of the lines of a plot at a step, given by its index. A smoothed line follows its values as they are. */
export function entriesAt(lines: Line[], plot: Pick<Plot, "valueAt" | "stepOf" | "steps">, index: number): Entry[] {
  const entries: Entry[] = [];
  lines.forEach(({ label, color, band, style }, number) => {
    if (label === "") return;
    const before = lines[number - 1];
    const isSmoothed = style === "normal" && before?.style === "faint";
    const own = isSmoothed ? number - 1 : number;
    const hasBand = isSmoothed ? before.band !== undefined : band !== undefined;
    const step = plot.stepOf(own, index);
    if (step === undefined) return;
    const value = plot.valueAt(own, index);
    const [high, low] = hasBand ? [plot.valueAt(own, index, 1), plot.valueAt(own, index, 2)] : [null, null];
    const smoothed = isSmoothed ? (plot.valueAt(number, index) ?? undefined) : undefined;
    const at = step === plot.steps()[index] ? undefined : spanText([lines[number] as Line], step);
    entries.push({ label, color, value, at, band: low === null || high === null ? undefined : [low, high], smoothed });
  });
  return entries;
}

/** An entry in words. */
export function entryText({ value, at, band, smoothed }: Entry): string {
  const parts = [value === null ? "not finite" : formatValue(value)];
  if (band !== undefined && band[0] < band[1]) parts.push(`(${formatValue(band[0])} to ${formatValue(band[1])})`);
  if (at !== undefined) parts.push(`at ${at}`);
  if (smoothed !== undefined) parts.push(`smoothed ${formatValue(smoothed)}`);
  return parts.join(" ");
}

/** The steps that the points of lines stand for where they are drawn: `7`, or `8 to 15`. */
export function spanText(lines: Line[], position: number): string {
  for (const { x, spans } of lines) {
    const at = x.indexOf(position);
    const [first, last] = [spans.first[at], spans.last[at]];
    if (first !== undefined && last !== undefined && first < last) return `${formatStep(first)} to ${formatStep(last)}`;
  }
  return formatStep(position);
}

/** The same with its unit: `step 7`, or `steps 8 to 15`. */
export function stepTitle(unit: string, lines: Line[], position: number): string {
  const text = spanText(lines, position);
  return `${text.includes(" ") ? `${unit}s` : unit} ${text}`;
}

/** All values at a position in words, for a screen reader. */
export function stepText(title: string, entries: Entry[]): string {
  const values = entries.slice(0, MOST_ENTRIES).map((entry) => `${entry.label} ${entryText(entry)}`);
  return [title, ...values].join(", ");
}

/** The values at the crosshair, beside it. */
export class Tooltip {
  readonly element = make("div", "na-tooltip", { "aria-hidden": "true" });

  constructor() {
    this.element.hidden = true;
  }

  hide(): void {
    this.element.hidden = true;
  }

  /**
   * Shows values, the greatest first.
   *
   * @param left The crosshair's distance from the left edge of the parent, in pixels.
   */
  show(title: string, entries: Entry[], left: number): void {
    const sorted = [...entries].sort((one, other) => (other.value ?? -Infinity) - (one.value ?? -Infinity));
    const shown = sorted.slice(0, MOST_ENTRIES);
    const rows = shown.map(
      (entry) => html`<div class="na-entry">
        <span class="na-swatch" .style=${`background: ${colorOf(entry.color)}`}></span>
        <span class="na-key">${entry.label}</span>
        <b>${entryText(entry)}</b>
      </div>`,
    );
    const rest = entries.length - shown.length;
    const more = rest > 0 ? html`<div class="na-entry">and ${rest} more</div>` : nothing;
    render(html`<div class="na-entry-head">${title}</div>${rows}${more}`, this.element);
    this.element.hidden = false;
    const room = this.element.parentElement?.clientWidth ?? 0;
    const width = this.element.offsetWidth;
    const onRight = left + 14 + width <= room;
    this.element.style.left = `${Math.max(0, onRight ? left + 14 : left - 14 - width)}px`;
  }
}
