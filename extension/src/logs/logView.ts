import { download } from "../charts/download";
import { inOrder, make, newId, OWN_KEYS, setAttribute, setChildren, setText } from "../dom";
import type { JobLink } from "../jobLink";
import type { LogLineRow, LogReply } from "../model";
import { plain } from "./ansi";
import { drawBlock } from "./blockElement";
import { type Block, blocks } from "./blocks";
import { type Filter, FilterTools } from "./filterTools";
import { logText } from "./logText";

/** Within this distance of the end, in pixels, the log counts as scrolled to the end. */
const END_MARGIN = 12;
/** How many lines are shown, how many more "Show earlier lines" adds each time, and the most. */
const LINES = 1000;
const MAX_LINES = 10_000;
/** The milliseconds after which a question without an answer is asked again: it may be lost, or the kernel was busy. */
const PATIENCE = 10_000;

/** Whose lines a log shows. */
export interface LogOwner {
  /** The rank; `null` for all ranks, whose lines are then labeled. */
  rank: number | null;
  /** For the names of files. */
  title: () => string;
}

/**
 * The lines of a rank, or of all ranks, which can be folded, filtered, and stored in a file. They come from the kernel's
 * log of the job; until the kernel answers, those that are part of the panel's state are shown.
 */
export class LogView {
  readonly element: HTMLDetailsElement;
  #owner: LogOwner;
  readonly #id = newId();
  readonly #link: JobLink;
  #tools: FilterTools;
  #text: HTMLElement;
  #count = make("span", "na-count", { "aria-live": "polite" });
  #earlier = make("button", "na-tool", { type: "button" }, "Show earlier lines");
  #download = make("button", "na-tool", { type: "button" }, "Download");
  #lines: LogLineRow[] = [];
  #first = 0;
  #end = 0;
  #hasEarlier = false;
  /** Whether the lines are those of the kernel's log. */
  #isConnected = false;
  #askedAt = 0;
  #most = LINES;
  #problem = "";
  #elements = new Map<string, HTMLElement>();
  #ofState: Record<string, string> | undefined;

  constructor(owner: LogOwner, link: JobLink, isOpen: boolean) {
    const name = owner.rank === null ? "all ranks" : `rank ${owner.rank}`;
    this.#owner = owner;
    this.#link = link;
    this.#tools = new FilterTools(
      name,
      () => this.#draw(),
      () => this.#begin(),
    );
    this.#tools.hasDetails = false;
    this.#text = make("div", "na-lines", { tabindex: "0", role: "log", "aria-live": "off", ...OWN_KEYS });
    this.#text.setAttribute("aria-label", `Lines of ${name}`);
    this.#earlier.addEventListener("click", () => this.#showEarlier());
    this.#earlier.hidden = true;
    setAttribute(this.#download, "aria-label", `Download the log of ${name}`);
    this.#download.addEventListener("click", () => this.#store());
    const tools = make("div", "na-tools", {}, this.#tools.element, this.#download, this.#count);
    const summary = make("summary", "na-fold", {}, owner.rank === null ? "Output of all ranks" : "Output");
    this.element = make("details", "na-output", {}, summary, tools, this.#earlier, this.#text);
    this.element.open = isOpen;
    this.element.addEventListener("toggle", () => (this.element.open ? this.#begin() : this.#forget()));
    if (isOpen) this.#begin();
  }

  /** Called as the panel is redrawn, with the lines of its state. */
  update(lines: Record<string, string>): void {
    if (!this.element.open) return;
    if (performance.now() - this.#askedAt > PATIENCE && this.#isConnected) this.#follow();
    if (this.#isConnected || lines === this.#ofState) return;
    this.#ofState = lines;
    this.#lines = inOrder(lines).map(([number, text]) => [Number(number), this.#owner.rank ?? 0, 0, 0, 0, text]);
    this.#draw();
  }

  dispose(): void {
    this.#forget();
  }

  /** Asks for lines: the last ones, those before a position, or those after one, once there are some. */
  #ask(asker: string, before: number | null, after: number | null, then: (reply: LogReply) => void): void {
    const content = { cmd: "log", rank: this.#owner.rank, before, after, ...this.#filter };
    this.#link.ask(asker, content, then);
  }

  /** No longer waits for any lines. */
  #forget(): void {
    for (const asker of [this.#id, this.#earlierId]) this.#link.forget(asker);
  }

  get #earlierId(): string {
    return `${this.#id}-earlier`;
  }

  /** Asks for the last lines that match the filter, and then for those that follow. */
  #begin(): void {
    this.#forget();
    this.#most = LINES;
    this.#askedAt = performance.now();
    if (this.#isConnected && this.#tools.isActive) setText(this.#count, "Searching…");
    this.#ask(this.#id, null, null, (reply) => {
      this.#isConnected = true;
      this.#tools.hasDetails = true;
      this.#lines = [];
      this.#take(reply);
    });
  }

  #follow(): void {
    this.#askedAt = performance.now();
    this.#ask(this.#id, null, this.#end, (reply) => this.#take(reply));
  }

  #take(reply: LogReply): void {
    this.#problem = reply.problem;
    if (reply.problem) {
      this.#draw();
      return;
    }
    if (reply.gap || this.#lines.length === 0) {
      this.#lines = [];
      this.#first = reply.first;
      this.#hasEarlier = reply.more;
    }
    this.#lines.push(...reply.lines);
    this.#end = reply.end;
    if (this.#lines.length > this.#most) {
      this.#lines.splice(0, this.#lines.length - this.#most);
      this.#first = this.#lines[0]?.[0] ?? this.#first;
      this.#hasEarlier = true;
    }
    this.#draw();
    this.#follow();
  }

  #showEarlier(): void {
    setText(this.#count, "Searching…");
    this.#earlier.disabled = true;
    this.#ask(this.#earlierId, this.#first, null, (reply) => {
      this.#earlier.disabled = false;
      this.#problem = reply.problem;
      if (!reply.problem) {
        this.#most = Math.min(MAX_LINES, this.#lines.length + reply.lines.length + LINES);
        this.#lines.unshift(...reply.lines);
        this.#first = reply.first;
        this.#hasEarlier = reply.more;
      }
      this.#draw();
    });
  }

  async #store(): Promise<void> {
    const { rank, title } = this.#owner;
    this.#download.disabled = true;
    try {
      const onPart = (done: number) => setText(this.#download, `${Math.floor(100 * done)}%`);
      const text = await logText(this.#link, this.#id, rank, onPart);
      download(text, `${title()}-${rank === null ? "all-ranks" : `rank${rank}`}.log`);
    } catch (error) {
      this.#problem = (error as Error).message;
      this.#draw();
    }
    this.#download.disabled = false;
    setText(this.#download, "Download");
  }

  get #filter(): Filter {
    return this.#tools.filter;
  }

  #draw(): void {
    const text = this.#text;
    const atEnd = text.scrollHeight - text.scrollTop - text.clientHeight < END_MARGIN;
    const fromEnd = text.scrollHeight - text.scrollTop;
    const before = text.scrollTop;
    const first = text.firstElementChild;
    const shown = this.#lines.filter((line) => matches(line, this.#filter));
    this.#drawBlocks(this.#filter.text ? shown.map((line) => ({ kind: "line", lines: [line] })) : blocks(shown));
    const isPrepended = first !== null && first !== text.firstElementChild && first.isConnected;
    text.scrollTop = atEnd ? text.scrollHeight : isPrepended ? text.scrollHeight - fromEnd : before;
    setAttribute(text, "data-searched", this.#tools.isActive ? "" : null);
    setAttribute(text, "data-count", String(shown.length));
    setText(this.#count, this.#problem || this.#counted(shown.length));
    this.#earlier.hidden = !this.#hasEarlier || this.#lines.length >= MAX_LINES;
  }

  #counted(shown: number): string {
    if (this.#hasEarlier && this.#lines.length >= MAX_LINES) return `${MAX_LINES} lines; download the log for the rest`;
    if (!this.#tools.isActive) return "";
    return this.#isConnected
      ? `${shown} ${shown === 1 ? "line matches" : "lines match"}${this.#hasEarlier ? " so far" : ""}`
      : `${shown} of the last ${this.#lines.length} lines`;
  }

  /** Draws blocks, of which those that have been drawn before are used again. */
  #drawBlocks(drawn: Block[]): void {
    const before = this.#elements;
    this.#elements = new Map();
    const query = this.#filter.text;
    for (const block of drawn) {
      const [position, , , , , content] = block.lines[0] as LogLineRow;
      const key = `${position} ${block.kind} ${block.lines.length} ${query} ${this.#isConnected ? "" : content}`;
      this.#elements.set(key, before.get(key) ?? drawBlock(block, this.#owner.rank === null, query));
    }
    for (const [key, element] of before) if (!this.#elements.has(key)) element.remove();
    setChildren(this.#text, [...this.#elements.values()]);
  }
}

/** Whether a line matches, as the kernel finds it in `log_scan.py`. */
function matches([, , stream, , level, text]: LogLineRow, filter: Filter): boolean {
  if (filter.stream !== "" && (filter.stream === "stderr") !== (stream === 1)) return false;
  if (level < filter.level) return false;
  return filter.text === "" || plain(text).toLowerCase().includes(filter.text);
}
