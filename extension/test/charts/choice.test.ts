import { describe, expect, it } from "vitest";
import { type Choice, load, MOST_CHARTS, moved, ordered, save, toggled, visible } from "../../src/charts/choice";

const NAMES = ["a", "b", "c"];
const NONE: Choice = { order: [], hidden: [] };

describe("the choice of charts", () => {
  it("shows all in their order, up to a number", () => {
    const many = Array.from({ length: 20 }, (_, index) => `m${index}`);
    expect(visible(NAMES, NONE)).toEqual(NAMES);
    expect(visible(many, NONE)).toEqual(many.slice(0, MOST_CHARTS));
  });

  it("hides a chart, and shows it again in its place", () => {
    const hidden = toggled(NAMES, NONE, "b");
    expect(visible(NAMES, hidden)).toEqual(["a", "c"]);
    expect(visible(NAMES, toggled(NAMES, hidden, "b")).sort()).toEqual(NAMES);
  });

  it("shows one that has no place instead of the last", () => {
    const many = Array.from({ length: 20 }, (_, index) => `m${index}`);
    const shown = visible(many, toggled(many, NONE, "m15"));
    expect([shown.length, shown.includes("m15"), shown.includes("m11")]).toEqual([MOST_CHARTS, true, false]);
  });

  it("moves a chart, not beyond the ends", () => {
    expect(ordered(NAMES, moved(NAMES, NONE, "c", -1))).toEqual(["a", "c", "b"]);
    expect(ordered(NAMES, moved(NAMES, NONE, "a", -1))).toEqual(NAMES);
  });

  it("adds metrics that come later at the end", () => {
    expect(ordered([...NAMES, "d"], moved(NAMES, NONE, "c", -2))).toEqual(["c", "a", "b", "d"]);
  });

  it("is kept for the next job of the same name, and survives what it can't read", () => {
    save("train()", { order: ["b"], hidden: ["a"] });
    expect(load("train()")).toEqual({ order: ["b"], hidden: ["a"] });
    expect(load("other()")).toEqual(NONE);
    localStorage.setItem("notebook-accel:charts:train()", "{");
    expect(load("train()")).toEqual(NONE);
  });
});
