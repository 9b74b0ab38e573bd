import { make } from "../dom";
import type { LogLineRow } from "../model";
import { type Color, parse, type Span } from "./ansi";
import { type Block, rankSpans } from "./blocks";

const FONTS = ["bold", "italic", "underline", "inverse"] as const;
/** The eight colors of a terminal, light or dark, as the theme names them. */
const COLORS = ["muted", "red", "green", "ocher", "blue", "purple", "teal", "ink"];
const BACKGROUNDS = ["gray", ...COLORS.slice(1, -1), "gray"];

/** Draws lines, with what was searched for marked, in lowercase. Everything that a rank has written becomes text nodes. */
export function drawBlock(block: Block, labeled: boolean, query: string): HTMLElement {
  const lines = block.lines as [LogLineRow, ...LogLineRow[]];
  const ranks = rankSpans(lines.map(([, rank]) => rank));
  if (block.kind !== "traceback") {
    const repeats = Math.round(lines.length / new Set(lines.map(([, rank]) => rank)).size);
    return drawLine(lines[0], labeled ? ranks : "", query, repeats);
  }
  const last = lines.at(-1) as LogLineRow;
  const count = make("span", "na-count", {}, `traceback, ${lines.length} lines`);
  const summary = make("summary", "na-summary", {}, drawLine(last, labeled ? ranks : "", query), count);
  const body = lines.map((line) => drawLine(line, "", query));
  return make("details", "na-block", {}, summary, ...body);
}

function drawLine([, , stream, , level, text]: LogLineRow, label: string, query: string, count = 1): HTMLElement {
  const element = make("div", "na-log-line");
  if (stream === 1) element.dataset.stream = "stderr";
  if (level > 0) element.dataset.level = level === 1 ? "warning" : "error";
  if (label) element.append(make("span", "na-log-rank", {}, `[${label}]`), " ");
  element.append(...marked(parse(text), query).map(drawSpan));
  if (count > 1) element.append(" ", make("span", "na-count", {}, `× ${count}`));
  return element;
}

interface Piece extends Span {
  isMatch?: boolean;
}

/** Splits the parts of a line where a match begins or ends. */
function marked(spans: Span[], query: string): Piece[] {
  const plain = spans.map(({ text }) => text).join("");
  const lower = plain.toLowerCase();
  if (query === "" || lower.length !== plain.length) return spans;
  const cuts: number[] = [];
  for (let at = lower.indexOf(query); at >= 0; at = lower.indexOf(query, at + query.length)) {
    cuts.push(at, at + query.length);
  }
  const pieces: Piece[] = [];
  let position = 0;
  let next = 0;
  for (const { text, style } of spans) {
    let from = 0;
    while (from < text.length) {
      while (next < cuts.length && (cuts[next] as number) <= position + from) next += 1;
      const end = Math.min(text.length, (cuts[next] ?? Number.POSITIVE_INFINITY) - position);
      pieces.push({ text: text.slice(from, end), style, isMatch: next % 2 === 1 });
      from = end;
    }
    position += text.length;
  }
  return pieces;
}

function drawSpan({ text, style, isMatch }: Piece): Node | string {
  const inner = isMatch ? make("mark", "", {}, text) : text;
  const { color, background } = style;
  const names = [...FONTS.filter((name) => style[name]), ...(color === null ? [] : ["color"])];
  if (background !== null) names.push("background");
  if (names.length === 0) return inner;
  const element = make("span", names.map((name) => `na-${name}`).join(" "), {}, inner);
  if (color !== null) element.style.setProperty("--na-color", css(color, COLORS));
  if (background !== null) element.style.setProperty("--na-background", css(background, BACKGROUNDS));
  return element;
}

function css(color: Color, palette: string[]): string {
  return Array.isArray(color) ? `rgb(${color.join(" ")})` : `var(--na-${palette[color % palette.length]})`;
}
