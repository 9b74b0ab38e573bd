// @vitest-environment happy-dom
import { expect, test } from "vitest";
import { linesOf } from "../src/comparisonChart";
import type { Run } from "../src/model";

function run(id: string, label: string): Run {
  return { id, label, by_step: true, x: [1, 2], mean: [1, null], problem: "" };
}

test("each job has a line in the color of its place, and jobs of one label are told apart", () => {
  const runs = [run("a", "train()"), run("b", "other()"), run("c", "train()")];
  const lines = linesOf({ metric: "loss", names: ["loss"], runs, complete: true });
  expect(lines.map(({ label, color }) => [label, color])).toEqual([
    ["train() (a)", 0],
    ["other()", 1],
    ["train() (c)", 2],
  ]);
  expect(lines[0]?.y).toEqual([1, null]);
});
