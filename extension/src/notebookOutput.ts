import type { Model } from "./kernel";

const WIDGET = "application/vnd.jupyter.widget-view+json";
/** How often, and how many times, the output is looked for on a page that is still loading. */
const RETRY_INTERVAL = 500;
const RETRIES = 20;
/** How long a change of the notebook takes to reach the other pages that edit it together with this one. */
const TURN = 1000;

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

/** Where a panel belongs: its ID, those of the panels before it, and the ID of the cell; see `panel.py`. */
export interface Place {
  id: string;
  former: string[];
  cell: string;
}

type Bundle = Record<string, unknown>;

/** An output in the notebook's model. */
interface Shown {
  data: Bundle;
  metadata?: Bundle;
  toJSON?(): Output;
}

/** The parts of JupyterLab's notebook model that are used here. */
interface Outputs {
  length: number;
  get(index: number): Shown;
  set(index: number, output: object): void;
  add(output: object): void;
}
interface Cell {
  id: string;
  outputs?: Outputs;
}
interface Context {
  isReady?: boolean;
  model?: { cells?: { length: number; get(index: number): Cell } } & Shared;
}
interface Shared {
  sharedModel?: { awareness?: Awareness };
}
/** The pages that edit a notebook together, as `y-protocols` knows them. */
interface Awareness {
  clientID: number;
  getStates(): Map<number, unknown>;
}

/**
 * The output of the notebook that shows the panel. On a page that was reloaded, the front end no longer knows which
 * output the kernel's updates are for, so the panel changes its output in the notebook's model. Works in JupyterLab and
 * Notebook, and does nothing elsewhere.
 */
export class NotebookOutput {
  #context: Context | undefined;
  #place: Place;
  #isClosed = false;

  constructor(model: Model) {
    this.#context = (model.widget_manager as { context?: Context } | undefined)?.context;
    this.#place = model.get("place") as Place;
  }

  /** Leaves the notebook as it is from now on: the panel is closed, and another may have taken its place. */
  close(): void {
    this.#isClosed = true;
  }

  /**
   * Has the output show this panel if it shows one before it, whose HTML stays for a page without a panel. Adds the output
   * if the page was saved without it.
   */
  async takeOver(): Promise<void> {
    if (!this.#place?.former?.length || !(await this.#ready())) return;
    const view = { version_major: 2, version_minor: 0, model_id: this.#place.id };
    this.#put(
      ({ data, metadata = {} }) => ({
        data: { "text/plain": "A job of notebook-accel", ...data, [WIDGET]: view },
        metadata,
      }),
      true,
    );
  }

  /**
   * Replaces the panel in the notebook, unless the kernel has done so. Also adds what the ranks have written and
   * displayed since the page was reloaded, which the front end could not assign to a cell.
   */
  async store(bundle: Bundle, outputs: Output[] = []): Promise<void> {
    if (!this.#place || !(await this.#ready())) return;
    const found = this.#put(() => ({ data: bundle, metadata: {} }), false);
    if (found === undefined) return;
    const shown = Array.from({ length: found.length }, (_, index) => found.get(index).toJSON?.() ?? found.get(index));
    const { changed, added } = unreceived(outputs, shown as Output[]);
    for (const [index, output] of changed) found.set(index, output);
    for (const output of added) found.add(output);
  }

  /** Whether the notebook has been loaded and the panel is still open; waits for the notebook, and for its turn. */
  async #ready(): Promise<boolean> {
    if (this.#context?.model === undefined) return false;
    for (let attempt = 0; attempt < RETRIES && !this.#context.isReady; attempt += 1) await sleep(RETRY_INTERVAL);
    await turn(this.#context.model);
    return this.#context.isReady === true && !this.#isClosed;
  }

  /** Puts what is made of the panel's output in its place; returns the outputs of its cell, if the panel was there. */
  #put(make: (before: Shown) => Shown, add: boolean): Outputs | undefined {
    // Its own ID, too: a page that is loading may receive the panel twice, and must show the later one.
    const panels = [...this.#place.former, this.#place.id];
    let own: Cell | undefined;
    for (const cell of this.#cells()) {
      if (cell.id === this.#place.cell) own = cell;
      for (let index = 0; index < (cell.outputs?.length ?? 0); index += 1) {
        const before = cell.outputs?.get(index) as Shown;
        const shown = before.data?.[WIDGET] as { model_id?: string } | undefined;
        if (shown?.model_id === undefined || !panels.includes(shown.model_id)) continue;
        const output = { output_type: "display_data", ...make(before) };
        // If the type stays the same, the front end reuses the renderer. That waits two seconds for the former panel, and
        // then writes "model not found" over this one.
        cell.outputs?.set(index, { ...output, data: { "text/plain": "" } });
        cell.outputs?.set(index, output);
        return cell.outputs;
      }
    }
    if (add) own?.outputs?.add({ output_type: "display_data", ...make({ data: {} }) });
    return undefined;
  }

  #cells(): Cell[] {
    const cells = this.#context?.model?.cells;
    return Array.from({ length: cells?.length ?? 0 }, (_, index) => cells?.get(index) as Cell);
  }
}

/**
 * Waits until this page may change a notebook that others edit together with it. They take turns, so that each sees what
 * those before it have changed, and nothing is in the notebook twice.
 */
export async function turn({ sharedModel }: Shared): Promise<void> {
  const { awareness } = sharedModel ?? {};
  if (awareness === undefined) return;
  const before = [...awareness.getStates().keys()].filter((each) => each < awareness.clientID);
  if (before.length) await sleep(TURN * before.length);
}

function sleep(milliseconds: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}

/**
 * What a cell lacks of the outputs that were written below it. It has some of the first of them, perhaps among others,
 * and in the same order: those that arrived before the page was reloaded.
 */
export function unreceived(written: Output[], shown: Output[]): Changes {
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
