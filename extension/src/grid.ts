import { make, OWN_KEYS, percent, setAttribute, setChildren, setText } from "./dom";
import { withHeadings } from "./elements";
import type { Rank } from "./model";

/**
 * How many cells are drawn in one frame. The layout of a cell takes 0.1 to 0.2 ms, far longer than changing it, and at
 * 60 frames a second a frame has 16 ms for everything.
 */
const CELLS_PER_FRAME = 16;

/** A heat map of many ranks: a cell shows the progress and phase of a rank. Arrow keys move between cells. */
export class Grid {
  readonly element = make("div", "na-grid", { role: "group", "aria-label": "Ranks; arrow keys move between them" });
  #cells = new Map<string, Cell>();
  #laidOut: Record<string, Rank> | undefined;
  #hosts = "";
  /** The index of the cell with which the next frame starts. */
  #next = 0;

  constructor(onToggle: (rank: string) => void) {
    this.element.addEventListener("keydown", (event) => this.#move(event));
    this.element.addEventListener("click", (event) => {
      const rank = rankOf(event);
      if (rank === undefined) return;
      this.#makeCurrent(rank);
      onToggle(rank);
    });
    this.element.addEventListener("pointerover", (event) => this.#cells.get(rankOf(event) ?? "")?.setTooltip());
  }

  /** Draws changed cells, at most `CELLS_PER_FRAME`; returns whether any remain for the next frame. */
  update(ranks: Record<string, Rank>, open: { has(rank: string): boolean }): boolean {
    this.#layOut(ranks);
    const cells = [...this.#cells];
    let drawn = 0;
    for (let seen = 0; seen < cells.length; seen += 1) {
      const [number, cell] = cells[this.#next % cells.length] as [string, Cell];
      const rank = ranks[number];
      const changed = rank !== undefined && !cell.shows(rank, open.has(number));
      if (changed && drawn === CELLS_PER_FRAME) return true;
      if (changed) cell.update(rank, open.has(number));
      drawn += Number(changed);
      this.#next = (this.#next + 1) % cells.length;
    }
    return false;
  }

  /** Adds all cells at once, still empty, so that nothing moves when they are drawn. */
  #layOut(ranks: Record<string, Rank>): void {
    if (ranks === this.#laidOut) return; // another frame for the same state
    this.#laidOut = ranks;
    const hosts = Object.entries(ranks)
      .map(([number, rank]) => `${number} ${rank.host}`)
      .join();
    if (hosts === this.#hosts) return;
    this.#hosts = hosts;
    const cells: [HTMLElement, string][] = [];
    for (const [number, rank] of Object.entries(ranks)) {
      const cell = this.#cells.get(number) ?? new Cell(number);
      if (!this.#cells.has(number)) cell.element.tabIndex = this.#cells.size === 0 ? 0 : -1;
      this.#cells.set(number, cell);
      cells.push([cell.element, rank.host]);
    }
    setChildren(
      this.element,
      withHeadings(cells, (host) => make("div", "na-machine", {}, host)),
    );
  }

  focus(rank: string): void {
    this.#makeCurrent(rank);
    this.#cells.get(rank)?.element.focus();
  }

  /** Makes this the one cell that Tab reaches. */
  #makeCurrent(rank: string): void {
    for (const [number, cell] of this.#cells) cell.element.tabIndex = number === rank ? 0 : -1;
  }

  #move(event: KeyboardEvent): void {
    const cells = [...this.#cells.values()].map((cell) => cell.element as HTMLElement);
    const at = cells.indexOf(event.target as HTMLElement);
    if (at < 0) return;
    const steps: Record<string, number> = {
      ArrowRight: 1,
      ArrowLeft: -1,
      ArrowDown: columns(cells),
      ArrowUp: -columns(cells),
      Home: -at,
      End: cells.length - 1 - at,
    };
    const step = steps[event.key];
    const rank = step === undefined ? undefined : cells[at + step]?.dataset.rank;
    if (step === undefined) return;
    event.preventDefault(); // otherwise, the page would scroll
    if (rank !== undefined) this.focus(rank);
  }
}

function columns(cells: HTMLElement[]): number {
  const first = cells[0]?.offsetTop;
  const second = cells.findIndex((cell) => cell.offsetTop !== first);
  return second < 0 ? cells.length : second;
}

/** The rank of the cell in which an event occurred. */
function rankOf(event: Event): string | undefined {
  return (event.target as Element).closest<HTMLElement>(".na-cell")?.dataset.rank;
}

const TEMPLATE = make(
  "button",
  "na-cell",
  { type: "button", "aria-expanded": "false", ...OWN_KEYS },
  make("span", "na-cell-rank"),
  make("span", "na-cell-amount"),
);

class Cell {
  readonly element = TEMPLATE.cloneNode(true) as HTMLButtonElement;
  #amount = this.element.lastElementChild as HTMLElement;
  #rank: string;
  #done = "";
  #drawn: Rank | undefined;
  #open = false;

  constructor(rank: string) {
    this.#rank = rank;
    this.element.dataset.rank = rank;
    setText(this.element.firstElementChild as HTMLElement, rank);
  }

  /** Sets the tooltip, only when the mouse is over the cell, so that updates stay cheap. */
  setTooltip(): void {
    setAttribute(this.element, "title", `${this.element.ariaLabel}. ${this.#drawn?.text ?? ""}`);
  }

  shows(rank: Rank, open: boolean): boolean {
    return rank === this.#drawn && open === this.#open;
  }

  update(rank: Rank, open: boolean): void {
    this.#drawn = rank;
    this.#open = open;
    setAttribute(this.element, "aria-expanded", String(open));
    setAttribute(this.element, "data-phase", rank.phase);
    setAttribute(this.element, "data-marked", rank.mark ? "" : null);
    const hasProgress = rank.phase === "running" || rank.phase === "done";
    const amount = hasProgress ? percent(rank.done) || rank.phase : rank.phase;
    setText(this.#amount, amount);
    const done = String(Math.max(0, rank.done) / 1000);
    if (done !== this.#done) this.element.style.setProperty("--na-done", done);
    this.#done = done;
    const label = [`Rank ${this.#rank}: ${rank.phase}`, percent(rank.done), rank.mark];
    setAttribute(this.element, "aria-label", label.filter(Boolean).join(", "));
  }
}
