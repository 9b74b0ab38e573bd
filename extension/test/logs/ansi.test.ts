import { describe, expect, it } from "vitest";
import { PLAIN, parse, plain } from "../../src/logs/ansi";

const E = "\u001b";

describe("the codes for terminals in a line", () => {
  it("change colors and fonts", () => {
    const spans = parse(`a ${E}[1;31mb${E}[22mc${E}[0m d${E}[4;38;5;208me${E}[48;2;1;2;3mf${E}[38:2::9:8:7mg${E}[m`);
    expect(spans.map(({ text }) => text).join("|")).toBe("a |b|c| d|e|f|g");
    const orange: [number, number, number] = [255, 135, 0];
    expect(spans.map(({ style }) => style)).toEqual([
      PLAIN,
      { ...PLAIN, bold: true, color: 1 },
      { ...PLAIN, color: 1 },
      PLAIN,
      { ...PLAIN, underline: true, color: orange },
      { ...PLAIN, underline: true, color: orange, background: [1, 2, 3] },
      { ...PLAIN, underline: true, color: [9, 8, 7], background: [1, 2, 3] },
    ]);
  });

  it.each([
    ["a cursor movement", `a${E}[2K${E}[1;1Hb`, "ab"],
    ["a link", `${E}]8;;https://x${E}\\a${E}]8;;\u0007b`, "ab"],
    ["a title that is not closed", `${E}]0;a`, "0;a"],
    ["a torn color", `a${E}[38;5`, "a"],
    ["an unknown color", `a${E}[38;5;999mb${E}[38;9mc`, "abc"],
    ["a character set", `${E}(Ba`, "a"],
    ["control characters, but for tabs", "a\u0000\u0008\u009b\tb", "a\tb"],
    ["an escape at the end", `a${E}`, "a"],
  ])("are removed otherwise: %s", (_, line, expected) => {
    expect(plain(line)).toBe(expected);
  });

  it.each([
    ["strings that are not closed", `${E}]`, ""],
    ["parameters", "[0;", E],
    ["colors", `${E}[38;2;1;2;3m`, ""],
  ])("take time in proportion to their number: %s", { timeout: 30_000 }, (_, part, start) => {
    parse(start + part.repeat(1_000_000)); // in quadratic time, minutes
  });
});
