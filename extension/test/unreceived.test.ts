import { describe, expect, it } from "vitest";
import { type Output, unreceived } from "../src/notebookOutput";

const lines = (...numbers: (number | string)[]): Output => ({
  output_type: "stream",
  name: "stdout",
  text: numbers.map((number) => `${number}\n`).join(""),
});
const picture = (text: string, fields: Partial<Output> = {}): Output => ({
  output_type: "display_data",
  data: { "text/plain": text },
  metadata: {},
  ...fields,
});

describe("what a cell lacks of its output", () => {
  it("is what was written after the page was reloaded", () => {
    expect(unreceived([lines(1, 2, 3)], [picture("panel"), lines(1)])).toEqual({ changed: [], added: [lines(2, 3)] });
    expect(unreceived([lines(1, 2)], [])).toEqual({ changed: [], added: [lines(1, 2)] });
  });

  it("is nothing if the cell has all of it, also among the user's own", () => {
    const shown = [lines("begins"), picture("panel"), { ...lines(1, "mine", 1), text: ["1\nmine\n", "1\n"] }];
    expect(unreceived([lines(1, 1)], shown)).toEqual({ changed: [], added: [] });
  });

  it("has displays in their place, and the last state of those that were updated", () => {
    const written = [lines(1), picture("a"), picture("100%", { updated: true }), lines(2), picture("b"), lines(3)];
    const shown = [picture("panel"), lines(1), picture("a"), picture("40%")];
    expect(unreceived(written, shown)).toEqual({
      changed: [[3, picture("100%")]],
      added: [lines(2), picture("b"), lines(3)],
    });
  });
});
