import type { ChartTable, Mark, Metric } from "../model";

export type Column = (number | null)[];

/** The first and the last step of each point of a chart; they are equal if nothing was thinned. */
export interface Spans {
  first: number[];
  last: number[];
}

/** The values of one metric of one job, by step or by bin of several steps. */
export interface Table extends Spans {
  /** The ID of an earlier job; empty for the panel's own. */
  job: string;
  metric: string;
  byStep: boolean;
  /** The mean of the values that are finite; `null` if there are none. */
  mean: Column;
  low: Column;
  high: Column;
  /** The mean of each rank, by its number; empty if only the ranks together are known. */
  ranks: Map<string, Column>;
  /** Steps with values that are not finite. */
  marks: Mark[];
  /** The first and the last step of the whole run. */
  extent: [number, number];
}

/** The columns before those of the ranks, in their order; see `chart_requests.py`. */
const COLUMNS = 5;

/** The table of a small chart. */
export function ofMetric(name: string, metric: Metric): Table {
  const { mean } = metric;
  const spans = spansOf(metric);
  const low = metric.low.length > 0 ? metric.low : mean;
  const high = metric.high.length > 0 ? metric.high : mean;
  const steps = [...spans.first, ...spans.last, ...metric.marks.map(([step]) => step)];
  const extent: [number, number] = steps.length > 0 ? [Math.min(...steps), Math.max(...steps)] : [0, 0];
  const shared = { job: "", metric: name, byStep: metric.by_step, ranks: new Map(), marks: metric.marks, extent };
  return { ...shared, ...spans, mean, low, high };
}

/** The tables of an answer of the kernel, whose numbers come as one array of all columns. */
export function unpack(described: ChartTable[], numbers: Float64Array): Table[] {
  let begin = 0;
  return described.map((each) => {
    const column = (): Column => {
      const values = numbers.subarray(begin, begin + each.size);
      begin += each.size;
      return Array.from(values, (value) => (Number.isNaN(value) ? null : value));
    };
    const [first, last, mean, low, high] = Array.from({ length: COLUMNS }, column) as [
      number[],
      number[],
      Column,
      Column,
      Column,
    ];
    const ranks = new Map(each.ranks.map((rank) => [String(rank), column()]));
    const { job, metric, by_step: byStep, marks, extent } = each;
    return { job, metric, byStep, first, last, mean, low, high, ranks, marks, extent };
  });
}

/** The spans of points, of which the last steps are left out if they are the first ones. */
export function spansOf({ x, last }: { x: number[]; last: number[] }): Spans {
  return { first: x, last: last.length > 0 ? last : x };
}

/** Where points are drawn. */
export function positions({ first, last }: Spans): number[] {
  return first.map((step, index) => (step + (last[index] as number)) / 2);
}

/** Whether every point of a table stands for a single step. */
export function isExact(table: Table): boolean {
  return table.first.every((first, index) => first === table.last[index]);
}

/** Whether the minimum or the maximum of any bin differs from its mean. */
export function hasSpread(table: Table): boolean {
  return table.mean.some((mean, index) => table.low[index] !== mean || table.high[index] !== mean);
}
