// @vitest-environment happy-dom
import { expect, test } from "vitest";
import { linesOf } from "../src/comparisonChart";
import type { Run } from "../src/model";
import { RunTable } from "../src/runTable";

const SCALE = { log: false, smoothing: 0 };

function run(id: string, label: string, ...facts: Run["facts"]): Run {
  const loss = { by_step: true, x: [1, 2], last: [], mean: [1, null] };
  return { id, label, curves: { loss }, facts, problem: "" };
}

test("each job that has reported the metric has a line, in the color of its place", () => {
  const runs = [run("a", "one()"), { ...run("b", "other()"), curves: {} }, run("c", "third()")];
  const lines = linesOf(runs, "loss", SCALE, () => true);
  expect(lines.map(({ label, color }) => [label, color])).toEqual([
    ["one()", 0],
    ["third()", 2],
  ]);
  expect(lines[0]?.y).toEqual([1, null]);
});

test("runs are sorted by a column, as numbers where they are numbers, and filtered by words", () => {
  const best = (order: number) => ({ name: "Best", text: `${order} at step 1`, order });
  const runs = [run("a", "wide()", best(10)), run("b", "deep()", best(9)), run("c", "deep wide()", best(0.5))];
  let changes = 0;
  const table = new RunTable(
    () => changes++,
    () => undefined,
  );
  table.update(runs);
  const shown = () => [...table.element.querySelectorAll<HTMLElement>("[data-job]")].map((each) => each.dataset.job);
  const heading = (title: string) => table.element.querySelector<HTMLElement>(`[title="Sort by ${title}"]`);
  expect(shown()).toEqual(["a", "b", "c"]);
  heading("Best")?.click();
  expect(shown()).toEqual(["c", "b", "a"]);
  heading("Best")?.click();
  expect([shown(), heading("Best")?.parentElement?.getAttribute("aria-sort")]).toEqual([["a", "b", "c"], "descending"]);
  heading("Job")?.click();
  expect(shown()).toEqual(["c", "b", "a"]);
  const search = table.element.querySelector("input") as HTMLInputElement;
  search.value = "Wide deep";
  search.dispatchEvent(new Event("input"));
  expect([shown(), runs.map((each) => table.shows(each)), changes]).toEqual([["c"], [false, false, true], 1]);
});

test("a line that is smoothed has its values behind it, and a logarithmic axis leaves out the others", () => {
  const loss = { by_step: true, x: [1, 2, 3], last: [], mean: [4, 0, 1] };
  const runs = [{ ...run("a", "train()"), curves: { loss } }];
  expect(linesOf(runs, "loss", { log: true, smoothing: 0 }, () => true)[0]?.y).toEqual([4, null, 1]);
  const lines = linesOf(runs, "loss", { log: false, smoothing: 0.9 }, () => true);
  expect(lines.map(({ style, label }) => [style, label])).toEqual([
    ["faint", ""],
    ["normal", "train()"],
  ]);
});
