import { expect, test } from "vitest";
import { runsOnRanks, toggled } from "../src/cellSource";

test.each([
  ["x = 1", "%%accelerate\nx = 1"],
  ["", "%%accelerate\n"],
  ["\nx", "%%accelerate\n\nx"],
  ["%accelerate -n 2", "%%accelerate\n%accelerate -n 2"],
])("%j is run on every rank, and back", (source, accelerated) => {
  expect(runsOnRanks(source)).toBe(false);
  expect(toggled(source)).toBe(accelerated);
  expect(runsOnRanks(accelerated)).toBe(true);
  expect(toggled(accelerated)).toBe(source);
});

test("a line with options is removed, too", () => {
  expect(toggled("%%accelerate -n 2 --show 1\nx")).toBe("x");
  expect(toggled("%%accelerate")).toBe("");
});

test.each(["%%here\nx", "%%accelerated\nx", "%%time\nx"])("%j has another magic", (source) => {
  expect(runsOnRanks(source)).toBe(false);
  expect(() => toggled(source)).toThrow(`begins with ${source.split("\n")[0]}`);
});
