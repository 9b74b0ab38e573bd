import { describe, expect, it } from "vitest";
import { toCsv } from "../../src/charts/download";
import { linesOf } from "../../src/charts/lines";
import { spansOf } from "../../src/charts/marks";
import { formatStep, formatValue, logTicks, tickTexts } from "../../src/charts/numbers";
import { SERIES } from "../../src/charts/palette";
import { smooth } from "../../src/charts/smoothing";
import { isExact, ofMetric, positions, type Table, unpack } from "../../src/charts/table";
import { entriesAt, entryText, stepText, stepTitle } from "../../src/charts/tooltip";
import { clampRange, nearestIndex, zoomed } from "../../src/charts/zoom";
import type { Mark } from "../../src/model";
import { aMetric } from "../examples";

const PLAIN = { byRank: false, smoothing: 0, log: false };

/** A table of two points, the second of which stands for two steps. */
function aTable(fields: Partial<Table> = {}): Table {
  return {
    ...{ job: "", metric: "loss", byStep: true, first: [0, 1], last: [0, 2], mean: [4, 1], low: [2, 0], high: [6, 2] },
    ...{ ranks: new Map(), marks: [], extent: [0, 2] as [number, number] },
    ...fields,
  };
}

describe("numbers", () => {
  it("are short", () => {
    const texts = [0, 0.48812, 12345.6, 1e6, 0.00003, 2.009e8, Number.NaN, -Infinity].map((value) =>
      formatValue(value),
    );
    expect(texts).toEqual(["0", "0.4881", "12346", "1000000", "3e-5", "2.009e8", "NaN", "−∞"]);
  });

  it("differ at an axis", () => {
    expect(tickTexts([100, 100.0005, 100.001])).toEqual(["100", "100.0005", "100.001"]);
    expect(tickTexts([1, null, 2])).toEqual(["1", "", "2"]);
  });

  it("are powers of ten at a logarithmic axis, and more if these are few", () => {
    expect(logTicks(0.09, 3)).toEqual([0.1, 0.2, 0.5, 1, 2]);
    expect(logTicks(1e-5, 20)).toEqual([1e-5, 1e-4, 1e-3, 0.01, 0.1, 1, 10]);
    expect(logTicks(1e-30, 1).length).toBeLessThan(10);
  });

  it("have a prefix if they are large steps", () => {
    expect([999, 12.5, 250_000, 1_250_000].map(formatStep)).toEqual(["999", "12.5", "250000", "1.25M"]);
  });
});

describe("a table", () => {
  it("is made of a small chart, whose band may be its line", () => {
    const table = ofMetric("loss", aMetric({ x: [3, 8], mean: [1, null], marks: [[9, 0]] }));
    expect([table.low, table.extent]).toEqual([
      [1, null],
      [3, 9],
    ]);
  });

  it("is made of the kernel's columns, one after the other", () => {
    const shared = { job: "", marks: [], by_step: true, extent: [0, 9] as [number, number] };
    const described = [
      { ...shared, metric: "loss", size: 2, ranks: [4, 5] },
      { ...shared, metric: "acc", size: 1, ranks: [] },
    ];
    const numbers = [0, 5, 4, 9, 1, Number.NaN, 0, Number.NaN, 2, Number.NaN, 10, 11, 12, 13, 7, 7, 0.5, 0.4, 0.6];
    const [loss, accuracy] = unpack(described, new Float64Array(numbers)) as [Table, Table];
    expect([loss.first, loss.last, loss.mean, loss.high]).toEqual([
      [0, 5],
      [4, 9],
      [1, null],
      [2, null],
    ]);
    expect([...loss.ranks]).toEqual([
      ["4", [10, 11]],
      ["5", [12, 13]],
    ]);
    expect([positions(loss), isExact(loss), isExact(accuracy)]).toEqual([[2, 7], false, true]);
    expect(accuracy.high).toEqual([0.6]);
  });
});

describe("smoothing", () => {
  it("keeps a level line level from its first point on", () => {
    expect(smooth([0, 1, 2], [3, 3, 3], 0.9, 2)).toEqual([3, 3, 3]);
  });

  it("is the same for a line that is thinned", () => {
    const x = Array.from({ length: 1001 }, (_, step) => step);
    const y = x.map((step) => (step < 500 ? 0 : 1));
    const every = smooth(x, y, 0.9, 1000);
    const fewer = smooth(
      x.filter((step) => step % 4 === 0),
      y.filter((_, step) => step % 4 === 0),
      0.9,
      1000,
    );
    expect(fewer[130]).toBeCloseTo(every[520] as number, 1);
    expect(every[520]).toBeGreaterThan(0.5);
    expect(every[520]).toBeLessThan(1);
  });

  it("leaves gaps, and passes over them", () => {
    expect(smooth([0, 1, 2], [1, null, 1], 0.5, 2)).toEqual([1, null, 1]);
  });
});

describe("lines", () => {
  it("are one for each metric, with a band, in the order in which they were added", () => {
    const lines = linesOf([aTable(), aTable({ metric: "val", low: [4, 1], high: [4, 1] })], PLAIN);
    expect(lines.map(({ label, color, band }) => [label, color, band !== undefined])).toEqual([
      ["loss", 0, true],
      ["val", 1, false],
    ]);
  });

  it("are one for each rank, before the range of all", () => {
    const lines = linesOf(
      [
        aTable({
          ranks: new Map([
            ["0", [4, 2]],
            ["1", [4, null]],
          ]),
        }),
      ],
      { ...PLAIN, byRank: true },
    );
    expect(lines.map(({ label }) => label)).toEqual(["", "rank 0", "rank 1"]);
    expect([lines[0]?.y, lines[0]?.band]).toEqual([
      [null, null],
      [
        [2, 0],
        [6, 2],
      ],
    ]);
  });

  it("are smoothed, with the values as they are behind them", () => {
    const lines = linesOf([aTable()], { ...PLAIN, smoothing: 0.5 });
    expect(lines.map(({ label, style }) => [label, style])).toEqual([
      ["", "faint"],
      ["loss", "normal"],
    ]);
    expect([lines[0]?.y, lines[1]?.y[0]]).toEqual([[4, 1], 4]);
  });

  it("leave out on a logarithmic axis what is not positive, and keep the band above it", () => {
    const [line] = linesOf([aTable({ mean: [-1, 1] })], { ...PLAIN, log: true });
    expect([line?.y, line?.band]).toEqual([
      [null, 1],
      [
        [2, 1],
        [6, 2],
      ],
    ]);
  });

  it("of an earlier job are behind the others, in the color of their metric", () => {
    const lines = linesOf([aTable(), aTable({ job: "abc" })], PLAIN);
    expect(lines.map(({ style, color }) => [style, color])).toEqual([
      ["earlier", 0],
      ["normal", 0],
    ]);
  });

  it("have colors that stand out on white and on black", () => {
    const linear = (channel: number) => (channel <= 0.03928 ? channel / 12.92 : ((channel + 0.055) / 1.055) ** 2.4);
    const luminance = (color: string) => {
      const [red, green, blue] = [1, 3, 5].map((at) => linear(Number.parseInt(color.slice(at, at + 2), 16) / 255));
      return 0.2126 * (red as number) + 0.7152 * (green as number) + 0.0722 * (blue as number);
    };
    for (const color of SERIES) {
      expect(1.05 / (luminance(color) + 0.05), color).toBeGreaterThan(3);
      expect((luminance(color) + 0.05) / (luminance("#111111") + 0.05), color).toBeGreaterThan(3);
    }
  });
});

describe("the values at a step", () => {
  const plotOf = (columns: (number | null)[][]) => ({
    valueAt: (line: number, index: number, column = 0) => columns[line * 3 + column]?.[index] ?? null,
    stepOf: (_line: number, index: number) => index as number | undefined,
    steps: () => [0, 1],
  });

  it("state the range, and the smoothed value", () => {
    const lines = linesOf([aTable()], { ...PLAIN, smoothing: 0.5 });
    const entries = entriesAt(lines, plotOf([[4], [6], [2], [3.5]]), 0);
    expect(entries.map(entryText)).toEqual(["4 (2 to 6) smoothed 3.5"]);
    expect(stepText("step 7", entries)).toBe("step 7, loss 4 (2 to 6) smoothed 3.5");
  });

  it("are of the step that they were reported at, and none once the line has ended", () => {
    const lines = linesOf([aTable()], PLAIN);
    const plot = plotOf([[4, 4]]);
    expect(entriesAt(lines, { ...plot, stepOf: () => 0 }, 1).map(entryText)).toEqual(["4 at 0"]);
    expect(entriesAt(lines, { ...plot, stepOf: () => undefined }, 1)).toEqual([]);
  });

  it("are of all steps that share a point", () => {
    const lines = linesOf([ofMetric("loss", aMetric({ x: [0, 1], last: [0, 2] }))], PLAIN);
    expect(lines[0]?.x).toEqual([0, 1.5]);
    expect([0, 1.5].map((step) => stepTitle("step", lines, step))).toEqual(["step 0", "steps 1 to 2"]);
    const plot = { ...plotOf([[4, 4]]), stepOf: () => 1.5 };
    expect(entriesAt(lines, plot, 0).map(entryText)).toEqual(["4 at 1 to 2"]);
  });

  it("say what is not finite", () => {
    const lines = linesOf([aTable({ low: [4, 1], high: [4, 1] })], PLAIN);
    expect(entriesAt(lines, plotOf([[null]]), 0).map(entryText)).toEqual(["not finite"]);
  });
});

describe("marks", () => {
  it("of NaN that are close are one area", () => {
    const marks: Mark[] = [
      [1, 0],
      [2, 0],
      [2.5, 1],
      [3, 0],
      [9, 0],
    ];
    expect(spansOf(marks, 1)).toEqual([
      { from: 1, to: 3 },
      { from: 9, to: 9 },
    ]);
  });
});

describe("a zoom", () => {
  it("stays within the run, and shows a step at least", () => {
    expect(clampRange([-5, 5], [0, 100])).toEqual([0, 10]);
    expect(clampRange([99.9, 100], [0, 100])).toEqual([99, 100]);
    expect(clampRange([10.4, 20.6], [0, 100])).toEqual([10, 21]);
    expect(clampRange([-50, 500], [0, 100])).toEqual([0, 100]);
  });

  it("finds the nearest step", () => {
    expect([nearestIndex([0, 4, 9], 6), nearestIndex([0, 4, 9], 7), nearestIndex([], 7)]).toEqual([1, 2, 0]);
  });

  it("keeps a step in its place", () => {
    expect(zoomed([0, 100], 25, 0.5)).toEqual([12.5, 62.5]);
  });
});

describe("CSV", () => {
  it("has a row for each point and rank, and quotes names", () => {
    const csv = toCsv([aTable({ metric: 'a "b", c', ranks: new Map([["0", [null, 3]]]) })]).split("\r\n");
    expect(csv).toEqual([
      "metric,job,rank,first step,last step,mean,minimum,maximum",
      '"a ""b"", c",,,0,0,4,2,6',
      '"a ""b"", c",,0,0,0,,,',
      '"a ""b"", c",,,1,2,1,0,2',
      '"a ""b"", c",,0,1,2,3,,',
      "",
    ]);
  });
});
