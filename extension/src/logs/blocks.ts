import type { LogLineRow } from "../model";

/** Lines that are shown as one: one that was repeated, a traceback that is folded, or a single one. */
export interface Block {
  kind: "line" | "repeated" | "traceback";
  lines: LogLineRow[];
}

const TRACEBACK = "Traceback (most recent call last)";
/** The fewest lines of a traceback that is folded. */
const SHORTEST = 4;

/**
 * Groups lines: equal ones that follow each other, also of different ranks, and each traceback, up to the line with its
 * exception.
 */
export function blocks(lines: LogLineRow[]): Block[] {
  const found: Block[] = [];
  for (let at = 0; at < lines.length; ) {
    const end = endOfTraceback(lines, at);
    if (end - at >= SHORTEST) {
      found.push({ kind: "traceback", lines: lines.slice(at, end) });
      at = end;
      continue;
    }
    const same = endOfEqual(lines, at);
    found.push({ kind: same - at > 1 ? "repeated" : "line", lines: lines.slice(at, same) });
    at = same;
  }
  return found;
}

/** After the traceback that begins at `at`; `at` if none does. */
function endOfTraceback(lines: LogLineRow[], at: number): number {
  const [, rank, stream, , , text] = lines[at] as LogLineRow;
  if (!text.startsWith(TRACEBACK)) return at;
  for (let end = at + 1; end < lines.length; end += 1) {
    const line = lines[end] as LogLineRow;
    if (line[1] !== rank || line[2] !== stream) return end;
    if (line[5] !== "" && !/^\s/.test(line[5])) return end + 1;
  }
  return lines.length; // the rest has not come yet
}

function endOfEqual(lines: LogLineRow[], at: number): number {
  const [, , stream, , , text] = lines[at] as LogLineRow;
  let end = at + 1;
  while (end < lines.length && lines[end]?.[5] === text && lines[end]?.[2] === stream) end += 1;
  return text.trim() === "" ? at + 1 : end;
}

/** Ranks as `0-3, 6`. */
export function rankSpans(ranks: Iterable<number>): string {
  const sorted = [...new Set(ranks)].sort((one, other) => one - other);
  const parts: [number, number][] = [];
  for (const rank of sorted) {
    const last = parts.at(-1);
    if (last !== undefined && last[1] === rank - 1) last[1] = rank;
    else parts.push([rank, rank]);
  }
  return parts.map(([first, last]) => (first === last ? `${first}` : `${first}-${last}`)).join(",");
}
