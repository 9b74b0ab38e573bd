import uPlot from "uplot";
import type { Mark } from "../model";
import type { Line } from "./lines";
import { drawMarks } from "./marks";
import { formatStep, logTicks, tickTexts } from "./numbers";
import { colorOf, type Palette, paletteOf, watchTheme } from "./palette";

/** What a plot shows. */
export interface Content {
  lines: Line[];
  marks: Mark[];
  /** The steps from the left edge to the right one. */
  range: [number, number];
  log: boolean;
}

export interface PlotOptions {
  height: number;
  /** The space between two numbers at the axes, in pixels. */
  space: { x: number; y: number };
  /** The key that plots share whose crosshairs move together. */
  sync?: string;
  /** Called with the index of the step below the crosshair in `steps()`; `null` if there is none. */
  onHover: (index: number | null) => void;
  /** Called when the user has selected a range of steps, or, with `null`, resets the range. */
  onZoom?: (range: [number, number] | null) => void;
}

const FONT_SIZE = 11;
/** The distances between two numbers at the axis of steps, which are whole. */
const STEPS = Array.from({ length: 8 }, (_, power) =>
  [1, 2, 5, 10, 20, 25, 50].map((step) => step * 100 ** power),
).flat();
/** Room for half of the last step below the right edge, in pixels. */
const RIGHT = 18;
/** The share of the height that is left free above and below the lines. */
const PADDING = 0.06;

/** Lines on a canvas, with axes and a crosshair, in the colors of the page, and as wide as its element. */
export class Plot {
  readonly element: HTMLElement;
  #options: PlotOptions;
  #plot: uPlot | undefined;
  #content: Content | undefined;
  #built = "";
  #width = 0;
  #resizes = new ResizeObserver(() => this.#fit());
  #unwatch: () => void;

  constructor(element: HTMLElement, options: PlotOptions) {
    this.element = element;
    this.#options = options;
    this.#resizes.observe(element);
    this.#unwatch = watchTheme(() => {
      if (this.#plot !== undefined && element.isConnected) this.#build(this.#built);
    });
  }

  /** Draws lines; returns whether the element has room for them. */
  draw(content: Content): boolean {
    if (this.element.clientWidth === 0) return false;
    const signature = JSON.stringify([
      content.log,
      content.lines.map(({ label, color, style, band }) => [label, color, style, band !== undefined]),
    ]);
    this.#content = content;
    if (this.#plot === undefined || signature !== this.#built) this.#build(signature);
    else this.#plot.setData(join(content.lines), true);
    return true;
  }

  #fit(): void {
    const width = Math.floor(this.element.clientWidth);
    if (width === this.#width || width === 0) return;
    this.#width = width;
    this.#plot?.setSize({ width, height: this.#options.height });
  }

  /** The steps at which there are values. */
  steps(): number[] {
    return (this.#plot?.data[0] ?? []) as number[];
  }

  /**
   * The value of a line at a step, given by its index, or else the one before it; `null` if it is not finite.
   *
   * @param column 0 for the line, 1 for the upper edge of its band, 2 for the lower edge.
   */
  valueAt(line: number, index: number, column: 0 | 1 | 2 = 0): number | null {
    const values = this.#plot?.data[firstOf(this.#content?.lines ?? [], line) + column];
    for (let at = index; at >= 0; at -= 1) {
      const value = values?.[at];
      if (value !== undefined) return value;
    }
    return null;
  }

  /** The step of that value; `undefined` before the first one of the line, and after the last. */
  stepOf(line: number, index: number): number | undefined {
    const values = this.#plot?.data[firstOf(this.#content?.lines ?? [], line)];
    let at = index;
    while (at >= 0 && values?.[at] === undefined) at -= 1;
    for (let after = index; after < (values?.length ?? 0); after += 1) {
      if (values?.[after] !== undefined) return this.steps()[at];
    }
    return undefined;
  }

  /** The distance of a step, given by its index, from the left edge of the element, in pixels. */
  leftOf(index: number): number {
    const step = this.steps()[index];
    if (this.#plot === undefined || step === undefined) return 0;
    return this.#plot.over.offsetLeft + this.#plot.valToPos(step, "x");
  }

  /** Moves the crosshair to a step, by its index; with `null`, hides it. */
  moveTo(index: number | null): void {
    const step = index === null ? undefined : this.steps()[index];
    const left = step === undefined ? -10 : (this.#plot?.valToPos(step, "x") ?? -10);
    this.#plot?.setCursor({ left, top: 0 });
  }

  /** The picture, and its size in pixels of the screen. */
  get canvas(): HTMLCanvasElement | undefined {
    return this.#plot?.ctx.canvas;
  }

  /** Stops following the page; the picture stays. */
  release(): void {
    this.#resizes.disconnect();
    this.#unwatch();
  }

  destroy(): void {
    this.release();
    this.#plot?.destroy();
    this.#plot = undefined;
  }

  #build(signature: string): void {
    const content = this.#content as Content;
    this.#built = signature;
    this.#plot?.destroy();
    this.#width = Math.floor(this.element.clientWidth);
    this.#plot = new uPlot(this.#uplotOptions(content), join(content.lines), this.element);
  }

  #uplotOptions({ lines, log }: Content): uPlot.Options {
    const { height, onZoom, sync } = this.#options;
    const palette = paletteOf(this.element);
    return {
      width: this.#width,
      height,
      padding: [FONT_SIZE - 3, RIGHT, 0, 0],
      legend: { show: false },
      cursor: {
        y: onZoom !== undefined,
        drag: { x: onZoom !== undefined, y: false, setScale: false },
        points: { size: 6 },
        focus: { prox: lines.length > 3 ? 24 : -1, dist: distance },
        bind: { dblclick: () => () => this.#reset() },
        dataIdx: (plot, series, index) => nearest(plot.data[series], index),
        ...(sync && { sync: { key: sync, setSeries: false, scales: ["x", null] } }),
      },
      focus: { alpha: 0.3 },
      scales: {
        x: { time: false, range: () => widened(this.#content?.range ?? [0, 1]) },
        y: { distr: log ? 3 : 1, range: (_, low, high) => (log ? logRange(low, high) : linearRange(low, high)) },
      },
      axes: this.#axes(palette, log),
      ...seriesOf(lines, palette),
      hooks: {
        draw: [(plot) => drawMarks(plot, this.#content?.marks ?? [], palette.red)],
        setCursor: [(plot) => this.#options.onHover(plot.cursor.idx ?? null)],
        setSelect: [(plot) => this.#select(plot)],
      },
    };
  }

  #axes(palette: Palette, log: boolean): uPlot.Axis[] {
    const { space } = this.#options;
    const shared = {
      stroke: palette.muted,
      font: `${FONT_SIZE}px ${palette.font}`,
      grid: { stroke: palette.grid, width: 1 },
      ticks: { show: false },
    };
    const width = (plot: uPlot, texts: string[] | null) => {
      plot.ctx.font = `${FONT_SIZE * uPlot.pxRatio}px ${palette.font}`;
      const widths = (texts ?? []).map((text) => plot.ctx.measureText(text).width / uPlot.pxRatio);
      return Math.ceil(Math.max(10, ...widths)) + 10;
    };
    return [
      {
        ...shared,
        grid: { show: false },
        space: space.x,
        size: FONT_SIZE + 11,
        gap: 5,
        incrs: STEPS,
        values: (_, at) => at.map(formatStep),
      },
      {
        ...shared,
        ...{ space: space.y, size: width, gap: 5, values: (_, at) => tickTexts(at) },
        ...(log && { splits: (_plot, _axis, low, high) => logTicks(low, high), filter: (_, at) => at }),
      },
    ];
  }

  #select(plot: uPlot): void {
    const { left, width } = plot.select;
    if (width < 4) return;
    const range: [number, number] = [plot.posToVal(left, "x"), plot.posToVal(left + width, "x")];
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.#options.onZoom?.(range);
  }

  #reset(): null {
    this.#options.onZoom?.(null);
    return null;
  }
}

/** The columns of a plot: all steps of all lines, and for each line its values, and the maximum and minimum. */
export function join(lines: Line[]): uPlot.AlignedData {
  if (lines.length === 0) return [[], []];
  return uPlot.join(lines.map(({ x, y, band }) => [x, y, ...(band ? [band[1], band[0]] : [])] as uPlot.AlignedData));
}

/** The index of the column with the values of a line. */
function firstOf(lines: Line[], line: number): number {
  return 1 + lines.slice(0, line).reduce((count, { band }) => count + (band ? 3 : 1), 0);
}

function seriesOf(lines: Line[], palette: Palette): Pick<uPlot.Options, "series" | "bands"> {
  const series: uPlot.Series[] = [{}];
  const bands: uPlot.Band[] = [];
  for (const { label, color, style, band } of lines) {
    const stroke = colorOf(color, palette.muted);
    const isAlone = (plot: uPlot, index: number) => onlyPoint(plot.data[index]);
    series.push({
      label,
      stroke: style === "normal" ? stroke : `${stroke}${style === "faint" ? "55" : "99"}`,
      width: style === "normal" ? 1.5 : 1,
      ...(style === "earlier" && { dash: [4, 3] }),
      pxAlign: 0, // otherwise, slopes have stairs
      points: { show: isAlone, size: 5, fill: stroke },
    });
    if (band === undefined) continue;
    const at = series.length;
    const edge: uPlot.Series = { label: "", stroke: "transparent", width: 0, pxAlign: 0, points: { show: false } };
    series.push({ ...edge }, { ...edge });
    bands.push({ series: [at, at + 1], fill: color < 0 ? `${palette.line}` : `${stroke}33` });
  }
  return { series, bands };
}

function onlyPoint(values: ArrayLike<number | null | undefined> | undefined): boolean {
  return Array.from(values ?? []).filter((value) => value != null).length === 1;
}

/** The index of the value that is nearest to one at which a line may have none. */
function nearest(values: ArrayLike<number | null | undefined> | undefined, index: number): number {
  if (values?.[index] !== undefined) return index;
  for (let distance = 1; distance < (values?.length ?? 0); distance += 1) {
    if (values?.[index - distance] !== undefined) return index - distance;
    if (values?.[index + distance] !== undefined) return index + distance;
  }
  return index;
}

/** The distance of a line from the pointer, by which one is made to stand out; the edges of bands never are. */
function distance(plot: uPlot, series: number, _index: number, value: number, pointer: number): number {
  return plot.series[series]?.label ? Math.abs(value - pointer) : Number.POSITIVE_INFINITY;
}

function widened([low, high]: [number, number]): [number, number] {
  return low < high ? [low, high] : [low - 1, low + 1];
}

function linearRange(low: number | null, high: number | null): [number, number] {
  if (low === null || high === null || !Number.isFinite(low + high)) return [0, 1];
  if (high - low <= 1e-9 * Math.max(Math.abs(low), Math.abs(high))) {
    const room = Math.abs(low) / 2 || 1;
    return [low - room, low + room];
  }
  const room = (high - low) * PADDING;
  const bottom = low >= 0 && low - room < 0 ? 0 : low - room; // what is never negative has no axis below 0
  return [bottom, high + room];
}

function logRange(low: number | null, high: number | null): [number, number] {
  if (low === null || high === null || low <= 0) return [0.1, 1];
  const room = Math.max((high / low) ** PADDING, 1.1);
  return [low / room, high * room];
}
