import { smooth } from "./smoothing";
import { type Column, hasSpread, positions, type Spans, type Table } from "./table";

/** A line of a plot. */
export interface Line {
  /** What distinguishes it from the other lines of its plot. */
  label: string;
  /** The index of its color. */
  color: number;
  x: number[];
  /** The steps that the points stand for. */
  spans: Spans;
  y: Column;
  /** The minimum and maximum, drawn as a band behind the line. */
  band: [Column, Column] | undefined;
  style: "normal" | "faint" | "earlier";
}

/** How values are drawn. */
export interface Scale {
  /** From 0 to 0.99. */
  smoothing: number;
  /** Whether the axis is logarithmic, and values that are not positive are left out. */
  log: boolean;
}

/** How the lines of a chart are drawn. */
export interface LineOptions extends Scale {
  byRank: boolean;
}

/** The lines of tables: one for each metric, or for each rank of each metric, and those of earlier jobs behind them. */
export function linesOf(tables: Table[], options: LineOptions): Line[] {
  const metrics = [...new Set(tables.map((table) => table.metric))];
  const own = tables.filter((table) => table.job === "");
  const earlier = tables.filter((table) => table.job !== "");
  const color = (table: Table) => metrics.indexOf(table.metric);
  const name = (table: Table) => (metrics.length > 1 ? table.metric : "");
  return [
    ...earlier.flatMap((table) => smoothed(table, table.mean, `${table.metric}, earlier`, color(table), options, true)),
    ...own.flatMap((table) => {
      if (!options.byRank || table.ranks.size === 0) {
        return smoothed(table, table.mean, table.metric, color(table), options, false);
      }
      const band = { ...lineOf(table, table.mean, "", color(table), options), y: table.mean.map(() => null) };
      const lines = [...table.ranks].flatMap(([rank, values], index) => {
        const label = [name(table), `rank ${rank}`].filter(Boolean).join(", ");
        const own = metrics.length > 1 ? color(table) : index;
        return smoothed({ ...table, low: values, high: values }, values, label, own, options, false);
      });
      return [{ ...band, label: "", color: metrics.length > 1 ? band.color : -1 }, ...lines];
    }),
  ];
}

/** A line of a metric. */
function smoothed(
  table: Table,
  values: Column,
  label: string,
  color: number,
  options: LineOptions,
  isEarlier: boolean,
): Line[] {
  const line = lineOf(table, values, label, color, options);
  if (isEarlier) {
    const y = smooth(line.x, line.y, options.smoothing, table.extent[1] - table.extent[0]);
    return [{ ...line, y, band: undefined, style: "earlier" }];
  }
  return withRaw(line, options, table.extent);
}

/** A line of one job among several. */
export function smoothedLine(line: Line, scale: Scale): Line[] {
  const y = scale.log ? positive(line.y) : line.y;
  return withRaw({ ...line, y }, scale, [line.x[0] ?? 0, line.x.at(-1) ?? 0]);
}

/** A line; if it is smoothed, behind it the values as they are. */
function withRaw(line: Line, { smoothing }: Scale, extent: [number, number]): Line[] {
  if (smoothing <= 0) return [line];
  const raw: Line = { ...line, label: "", style: "faint" };
  return [raw, { ...line, band: undefined, y: smooth(line.x, line.y, smoothing, extent[1] - extent[0]) }];
}

function positive(column: Column): Column {
  return column.map((value) => (value !== null && value > 0 ? value : null));
}

function lineOf(table: Table, values: Column, label: string, color: number, { log }: LineOptions): Line {
  const drawable = (column: Column) => (log ? positive(column) : column);
  const y = drawable(values);
  // On a logarithmic axis, a band that begins at 0 or below it has no lower edge: it begins at the line.
  const low = log
    ? table.low.map((value, index) => (value !== null && value > 0 ? value : (y[index] ?? null)))
    : table.low;
  const band: [Column, Column] | undefined = hasSpread(table) ? [low, drawable(table.high)] : undefined;
  return { label, color, x: positions(table), spans: table, y, band, style: "normal" };
}
