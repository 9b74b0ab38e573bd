/** How a part of a line looks. A color is a number of the terminal's palette, or red, green and blue. */
export interface Style {
  bold: boolean;
  italic: boolean;
  underline: boolean;
  inverse: boolean;
  color: Color | null;
  background: Color | null;
}

export type Color = number | [number, number, number];

export interface Span {
  text: string;
  style: Style;
}

export const PLAIN: Style = {
  bold: false,
  italic: false,
  underline: false,
  inverse: false,
  color: null,
  background: null,
};

const ESCAPE = 0x1b;
const BELL = 0x07;
const TAB = 0x09;
/** What begins a string that ends with a bell or `ESC \`: of the operating system (a link, a title), and of devices. */
const STRINGS = "]PX^_";

/**
 * The parts of a line, without codes for terminals (ECMA-48), of which only those for colors and fonts are followed. Reads
 * each character a bounded number of times, whatever a rank has written.
 */
export function parse(line: string): Span[] {
  const spans: Span[] = [];
  let style = PLAIN;
  let from = 0;
  let at = 0;
  while (at < line.length) {
    const code = line.charCodeAt(at);
    if (!isControl(code)) {
      at += 1;
      continue;
    }
    if (at > from) spans.push({ text: line.slice(from, at), style });
    const end = code === ESCAPE ? endOfSequence(line, at) : at + 1;
    if (line[at + 1] === "[" && line[end - 1] === "m") style = withCodes(style, line.slice(at + 2, end - 1));
    from = end;
    at = end;
  }
  if (at > from) spans.push({ text: line.slice(from), style });
  return spans;
}

function isControl(code: number): boolean {
  return (code < 0x20 && code !== TAB) || (code >= 0x7f && code < 0xa0);
}

/** Where a sequence that begins at `start` ends; a torn one ends before what doesn't belong to it. */
function endOfSequence(line: string, start: number): number {
  const kind = line[start + 1];
  if (kind === undefined) return start + 1;
  if (kind === "[") {
    const after = skip(line, skip(line, start + 2, 0x30, 0x3f), 0x20, 0x2f);
    return skip(line, after, 0x40, 0x7e, 1);
  }
  if (STRINGS.includes(kind)) {
    let at = start + 2;
    while (at < line.length && line.charCodeAt(at) !== ESCAPE && line.charCodeAt(at) !== BELL) at += 1;
    if (line.charCodeAt(at) === BELL) return at + 1;
    return line[at + 1] === "\\" ? at + 2 : start + 2; // what is not closed is text
  }
  const after = skip(line, start + 1, 0x20, 0x2f);
  return skip(line, after, 0x30, 0x7e, 1);
}

/** The first position from `at` on whose character is not between two codes; at most `most` further. */
function skip(line: string, at: number, low: number, high: number, most = Number.POSITIVE_INFINITY): number {
  let end = at;
  while (end - at < most && line.charCodeAt(end) >= low && line.charCodeAt(end) <= high) end += 1;
  return end;
}

/** The style after codes such as `1;31` (SGR, "select graphic rendition"). */
function withCodes(style: Style, codes: string): Style {
  if (/[^\d;:]/.test(codes)) return style;
  const numbers = codes.split(/[;:]/).map((code) => (code === "" ? 0 : Number(code)));
  let next = { ...style };
  for (let at = 0; at < numbers.length; at += 1) {
    const code = numbers[at] as number;
    if (code === 0) next = { ...PLAIN };
    else if (code === 1) next.bold = true;
    else if (code === 3) next.italic = true;
    else if (code === 4) next.underline = true;
    else if (code === 7) next.inverse = true;
    else if (code === 22) next.bold = false;
    else if (code === 23) next.italic = false;
    else if (code === 24) next.underline = false;
    else if (code === 27) next.inverse = false;
    else if (code >= 30 && code <= 37) next.color = code - 30;
    else if (code >= 90 && code <= 97) next.color = code - 82;
    else if (code === 39) next.color = null;
    else if (code >= 40 && code <= 47) next.background = code - 40;
    else if (code >= 100 && code <= 107) next.background = code - 92;
    else if (code === 49) next.background = null;
    else if (code === 38 || code === 48) {
      const [color, length] = extended(numbers, at + 1, codes.includes(":"));
      at += length;
      if (color !== null) next[code === 38 ? "color" : "background"] = color;
    }
  }
  return next;
}

/** A color of 256 (`5;n`) or of all (`2;r;g;b`, or `2::r:g:b`), and how many numbers it takes. */
function extended(numbers: number[], at: number, hasColons: boolean): [Color | null, number] {
  const byte = (index: number) => {
    const value = numbers[index];
    return value !== undefined && value <= 255 ? value : null;
  };
  if (numbers[at] === 5) {
    const index = byte(at + 1);
    return [index === null ? null : ofPalette(index), 2];
  }
  if (numbers[at] !== 2) return [null, 0];
  const first = hasColons && numbers.length - at >= 5 ? at + 2 : at + 1; // after the color space
  const [red, green, blue] = [byte(first), byte(first + 1), byte(first + 2)];
  const color: Color | null = red === null || green === null || blue === null ? null : [red, green, blue];
  return [color, first + 2 - at + 1];
}

/** The color of xterm's palette of 256. */
function ofPalette(index: number): Color {
  if (index < 16) return index;
  if (index >= 232) {
    const gray = 8 + 10 * (index - 232);
    return [gray, gray, gray];
  }
  const level = (part: number) => (part === 0 ? 0 : 55 + 40 * part);
  const cube = index - 16;
  return [level(Math.floor(cube / 36)), level(Math.floor(cube / 6) % 6), level(cube % 6)];
}

/** A line without codes for terminals. */
export function plain(line: string): string {
  return parse(line)
    .map(({ text }) => text)
    .join("");
}
