/** An output of the notebook format, as far as it is used here. */
export interface Output {
  output_type: string;
  /** Of a stream. */
  name?: string;
  text?: string | string[];
  /** Of a display. */
  data?: Record<string, unknown>;
  metadata?: Record<string, unknown>;
  /** Whether a display has been updated, so that the notebook may have an earlier state of it. */
  updated?: boolean;
}

interface Changes {
  /** The outputs that replace others, by their index. */
  changed: [number, Output][];
  added: Output[];
}

/** One line of a stream, or a display, and the index of its output. */
interface Piece {
  output: Output;
  index: number;
  line?: string;
}

/**
 * What a cell lacks of the outputs that were written below it. It has some of the first of them, perhaps among others,
 * and in the same order: those that arrived before the page was reloaded.
 */
export function missing(written: Output[], shown: Output[]): Changes {
  const left = pieces(written);
  const changed: [number, Output][] = [];
  let next = 0;
  for (const piece of pieces(shown)) {
    const expected = left[next];
    if (expected === undefined || !isSame(expected, piece)) continue;
    if (expected.output.updated) changed.push([piece.index, asOutput(expected.output)]);
    next += 1;
  }
  return { changed, added: joined(left.slice(next)) };
}

function pieces(outputs: Output[]): Piece[] {
  return outputs.flatMap((output, index) => {
    if (output.output_type !== "stream") return [{ output, index }];
    const text = Array.isArray(output.text) ? output.text.join("") : (output.text ?? "");
    const lines = text.split(/(?<=\n)/);
    return lines.filter(Boolean).map((line) => ({ output, index, line }));
  });
}

function isSame(expected: Piece, shown: Piece): boolean {
  const [a, b] = [expected.output, shown.output];
  if (a.output_type !== b.output_type || expected.line !== shown.line || a.name !== b.name) return false;
  return a.output_type === "stream" || a.updated === true || text(a) === text(b);
}

function text(output: Output): string {
  return JSON.stringify([output.data?.["text/plain"]].flat(2).join(""));
}

/** The outputs of these pieces, with consecutive lines of a stream in one. */
function joined(pieces: Piece[]): Output[] {
  const outputs: Output[] = [];
  for (const { output, line } of pieces) {
    const last = outputs.at(-1);
    if (line === undefined) outputs.push(asOutput(output));
    else if (last?.output_type === "stream" && last.name === output.name) last.text = `${last.text}${line}`;
    else outputs.push({ output_type: "stream", name: output.name ?? "stdout", text: line });
  }
  return outputs;
}

function asOutput({ output_type, data = {}, metadata = {} }: Output): Output {
  return { output_type, data, metadata };
}
