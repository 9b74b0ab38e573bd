import { make, setChildren } from "./dom";
import { Grid } from "./grid";
import { Machines } from "./machines";
import type { State } from "./model";
import { Row } from "./row";

/** In a grid, how many of the ranks that failed have a row although nobody has unfolded them. */
const MOST_FAILED = 4;

/** Every rank: as a row, or where they are many as a cell of a grid, with rows below for what is unfolded or failed. */
export class Ranks {
  readonly element = make("div", "na-ranks");
  #failed = make("div", "na-rows", { role: "list", "aria-label": "Ranks that failed" });
  #list = make("div", "na-rows", { role: "list", "aria-label": "Ranks" });
  #machines = new Map<HTMLElement, Machines>([
    [this.#failed, new Machines("listitem")],
    [this.#list, new Machines("listitem")],
  ]);
  #grid: Grid | undefined;
  #rows = new Map<string, Row>();
  #open = new Set<string>();
  #redraw: () => void;

  constructor(redraw: () => void) {
    this.#redraw = redraw;
    this.element.append(this.#failed, this.#list);
  }

  /** Draws what has changed; returns whether something is left for the next frame. */
  update(state: State): boolean {
    const { head, ranks } = state;
    let isLeft = false;
    const failed = head.failed.map(String);
    if (head.layout === "grid") {
      if (this.#grid === undefined) {
        this.#grid = new Grid((rank) => this.#toggle(rank));
        this.#failed.after(this.#grid.element);
      }
      isLeft = this.#grid.update(ranks, this.#open);
      const first = failed.slice(0, MOST_FAILED);
      const rest = [...this.#open].filter((rank) => !first.includes(rank)).sort((one, other) => +one - +other);
      this.#drawRows(this.#failed, ranks, first);
      this.#drawRows(this.#list, ranks, rest);
    } else {
      const rest = Object.keys(ranks).filter((rank) => !head.failed.includes(+rank));
      this.#drawRows(this.#list, ranks, [...failed, ...rest]);
    }
    return isLeft;
  }

  #drawRows(list: HTMLElement, ranks: State["ranks"], order: string[]): void {
    const elements: [HTMLElement, string][] = [];
    for (const rank of order) {
      const state = ranks[rank];
      if (state === undefined) continue;
      let row = this.#rows.get(rank);
      if (row === undefined) {
        row = new Row(rank, () => this.#toggle(rank));
        this.#rows.set(rank, row);
      }
      row.update(state, this.#open.has(rank));
      elements.push([row.element, state.host]);
    }
    setChildren(list, this.#machines.get(list)?.divide(elements) ?? []);
    list.hidden = elements.length === 0;
  }

  #toggle(rank: string): void {
    if (!this.#open.delete(rank)) {
      this.#open.add(rank);
    } else if (this.#grid && this.#rows.get(rank)?.element.contains(document.activeElement)) {
      this.#grid.focus(rank); // its row goes away with the button that had the focus
    }
    this.#redraw();
  }
}
