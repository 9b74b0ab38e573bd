import { smooth } from "./smoothing";
import { type Column, hasSpread, positions, type Table } from "./table";

/** A line of a plot. */
export interface Line {
  /** What distinguishes it from the other lines of its plot. */
  label: string;
  /** The index of its color. */
  color: number;
  x: number[];
  y: Column;
  /** The minimum and maximum, drawn as a band behind the line. */
  band: [Column, Column] | undefined;
  style: "normal" | "faint" | "earlier";
}

/** How the lines of a chart are drawn. */
export interface LineOptions {
  byRank: boolean;
  smoothing: number;
  /** Whether values that are not positive are left out. */
  log: boolean;
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

/** A line; if it is smoothed, behind it the values as they are. */
function smoothed(
  table: Table,
  values: Column,
  label: string,
  color: number,
  options: LineOptions,
  isEarlier: boolean,
): Line[] {
  const line = lineOf(table, values, label, color, options);
  if (isEarlier) return [{ ...line, y: strengthened(line, table, options), band: undefined, style: "earlier" }];
  if (options.smoothing <= 0) return [line];
  const raw: Line = { ...line, label: "", style: "faint" };
  return [raw, { ...line, band: undefined, y: strengthened(line, table, options) }];
}

function strengthened(line: Line, table: Table, options: LineOptions): Column {
  return smooth(line.x, line.y, options.smoothing, table.extent[1] - table.extent[0]);
}

function lineOf(table: Table, values: Column, label: string, color: number, { log }: LineOptions): Line {
  const drawable = (column: Column) =>
    log ? column.map((value) => (value !== null && value > 0 ? value : null)) : column;
  const y = drawable(values);
  // On a logarithmic axis, a band that begins at 0 or below it has no lower edge: it begins at the line.
  const low = log
    ? table.low.map((value, index) => (value !== null && value > 0 ? value : (y[index] ?? null)))
    : table.low;
  const band: [Column, Column] | undefined = hasSpread(table) ? [low, drawable(table.high)] : undefined;
  return { label, color, x: positions(table), y, band, style: "normal" };
}
