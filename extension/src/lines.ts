import { inOrder, make, setAttribute, setText } from "./dom";

/** Within this distance of the end, in pixels, the output counts as scrolled to the end. */
const END_MARGIN = 12;

/** The last lines of output of a rank, which can be folded and searched. */
export class Lines {
  readonly element: HTMLElement;
  #text: HTMLPreElement;
  #search: HTMLInputElement;
  #count = make("span", "na-count", { role: "status" });
  #lines: Record<string, string> = {};
  #query = "";

  constructor(rank: string) {
    this.#text = make("pre", "na-lines", { tabindex: "0", role: "log", "aria-live": "off" });
    this.#text.setAttribute("aria-label", `Last lines of rank ${rank}`);
    const search = { type: "search", placeholder: "Search", "aria-label": `Search the lines of rank ${rank}` };
    this.#search = make("input", "na-search", search);
    this.#search.addEventListener("input", () => {
      this.#query = this.#search.value.toLowerCase();
      this.#draw();
    });
    this.#search.addEventListener("keydown", (event) => event.stopPropagation()); // the notebook has shortcuts
    const tools = make("div", "na-tools", {}, this.#search, this.#count);
    const summary = make("summary", "na-fold", {}, "Output");
    this.element = make("details", "na-output", { open: "" }, summary, tools, this.#text);
  }

  update(lines: Record<string, string>): void {
    if (lines === this.#lines) return;
    this.#lines = lines;
    this.#draw();
  }

  #draw(): void {
    const pre = this.#text;
    const atEnd = pre.scrollHeight - pre.scrollTop - pre.clientHeight < END_MARGIN;
    const before = pre.scrollTop;
    const all = inOrder(this.#lines).map(([, line]) => line);
    const shown = this.#query ? all.filter((line) => line.toLowerCase().includes(this.#query)) : all;
    if (this.#query) pre.replaceChildren(...shown.flatMap((line) => [...this.#marked(line), "\n"]));
    else if (pre.childElementCount > 0) pre.replaceChildren(shown.join("\n"));
    else setText(pre, shown.join("\n"));
    setAttribute(pre, "data-searched", this.#query ? "" : null);
    setAttribute(pre, "data-count", String(shown.length));
    setText(this.#count, this.#query ? `${shown.length} of the last ${all.length} lines` : "");
    pre.scrollTop = atEnd ? pre.scrollHeight : before;
  }

  /** The parts of a line, with what was searched for marked. */
  #marked(line: string): (Node | string)[] {
    const parts: (Node | string)[] = [];
    const lower = line.toLowerCase();
    let from = 0;
    for (let at = lower.indexOf(this.#query); at >= 0; at = lower.indexOf(this.#query, from)) {
      const end = at + this.#query.length;
      parts.push(line.slice(from, at), make("mark", "", {}, line.slice(at, end)));
      from = end;
    }
    return [...parts, line.slice(from)];
  }
}
