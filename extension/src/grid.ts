import { make, percent, setAttribute, setText } from "./dom";
import type { Rank } from "./model";

/** Many ranks as a heat map of how far they are and how they do. Arrow keys go from one to the next. */
export class Grid {
  readonly element = make("div", "na-grid", { role: "group", "aria-label": "Ranks; arrow keys move between them" });
  #cells = new Map<string, Cell>();
  #onToggle: (rank: string) => void;

  constructor(onToggle: (rank: string) => void) {
    this.#onToggle = onToggle;
    this.element.addEventListener("keydown", (event) => this.#move(event));
  }

  update(ranks: Record<string, Rank>, open: Set<string>): void {
    for (const [number, rank] of Object.entries(ranks)) {
      let cell = this.#cells.get(number);
      if (cell === undefined) {
        cell = new Cell(number, () => {
          this.#makeCurrent(number);
          this.#onToggle(number);
        });
        cell.element.tabIndex = this.#cells.size === 0 ? 0 : -1;
        this.#cells.set(number, cell);
        this.element.append(cell.element);
      }
      cell.update(rank, open.has(number));
    }
  }

  focus(rank: string): void {
    this.#makeCurrent(rank);
    this.#cells.get(rank)?.element.focus();
  }

  /** Only one cell is reached by Tab. */
  #makeCurrent(rank: string): void {
    for (const [number, cell] of this.#cells) cell.element.tabIndex = number === rank ? 0 : -1;
  }

  #move(event: KeyboardEvent): void {
    const cells = [...this.element.children] as HTMLElement[];
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
    event.preventDefault(); // the page would scroll
    if (rank !== undefined) this.focus(rank);
  }
}

function columns(cells: HTMLElement[]): number {
  const first = cells[0]?.offsetTop;
  const second = cells.findIndex((cell) => cell.offsetTop !== first);
  return second < 0 ? cells.length : second;
}

class Cell {
  readonly element: HTMLButtonElement;
  #amount = make("span", "na-cell-amount");
  #rank: string;
  #done = "";
  #drawn: Rank | undefined;

  constructor(rank: string, onClick: () => void) {
    this.#rank = rank;
    const attributes = { type: "button", "data-rank": rank, "aria-expanded": "false" };
    this.element = make("button", "na-cell", attributes, make("span", "na-cell-rank", {}, rank), this.#amount);
    this.element.addEventListener("click", onClick);
    this.element.addEventListener("pointerenter", () => {
      setAttribute(this.element, "title", `${this.element.ariaLabel}. ${this.#drawn?.text ?? ""}`);
    });
  }

  update(rank: Rank, open: boolean): void {
    setAttribute(this.element, "aria-expanded", String(open));
    if (rank === this.#drawn) return;
    this.#drawn = rank;
    setAttribute(this.element, "data-phase", rank.phase);
    setAttribute(this.element, "data-behind", rank.behind ? "" : null);
    const moving = rank.phase === "running" || rank.phase === "done";
    const amount = moving ? percent(rank.done) || rank.phase : rank.phase;
    setText(this.#amount, amount);
    const done = String(Math.max(0, rank.done) / 1000);
    if (done !== this.#done) this.element.style.setProperty("--na-done", done);
    this.#done = done;
    const words = [`Rank ${this.#rank}: ${rank.phase}`, percent(rank.done), rank.behind ? "behind the others" : ""];
    setAttribute(this.element, "aria-label", words.filter(Boolean).join(", "));
  }
}
