import { make, setChildren } from "./dom";
import { Grid } from "./grid";
import { HostHeadings } from "./hostHeadings";
import { LogView } from "./logs/logView";
import type { State } from "./model";
import type { Questions } from "./questions";
import { Row } from "./row";

/** How many of the failed ranks have a row below the grid even if the user has not expanded them. */
const MAX_FAILED_ROWS = 4;

/** All ranks: as rows, or if there are many, as a grid, with rows around it for expanded and failed ranks. */
export class Ranks {
  readonly element = make("div", "na-ranks");
  #failed = make("div", "na-rows", { role: "list", "aria-label": "Ranks that failed" });
  #list = make("div", "na-rows", { role: "list", "aria-label": "Ranks" });
  #headings = new Map<HTMLElement, HostHeadings>([
    [this.#failed, new HostHeadings("listitem")],
    [this.#list, new HostHeadings("listitem")],
  ]);
  #grid: Grid | undefined;
  #rows = new Map<string, Row>();
  #open = new Set<string>();
  #redraw: () => void;
  #send: (content: object) => void;
  #questions: Questions;
  #title: () => string;

  constructor(redraw: () => void, send: (content: object) => void, questions: Questions, title: () => string) {
    this.#redraw = redraw;
    this.#questions = questions;
    this.#title = title;
    this.#send = send;
    this.element.append(this.#failed, this.#list);
  }

  /** Draws what has changed; returns whether anything remains for the next frame. */
  update(state: State): boolean {
    const { head, ranks } = state;
    let hasMore = false;
    const failed = head.failed.map(String);
    if (head.layout === "grid") {
      if (this.#grid === undefined) {
        this.#grid = new Grid((rank) => this.#toggle(rank));
        this.#failed.after(this.#grid.element);
      }
      hasMore = this.#grid.update(ranks, this.#open);
      const first = failed.slice(0, MAX_FAILED_ROWS);
      const rest = [...this.#open].filter((rank) => !first.includes(rank)).sort((one, other) => +one - +other);
      this.#drawRows(this.#failed, state, first);
      this.#drawRows(this.#list, state, rest);
    } else {
      const rest = Object.keys(ranks).filter((rank) => !head.failed.includes(+rank));
      this.#drawRows(this.#list, state, [...failed, ...rest]);
    }
    return hasMore;
  }

  #drawRows(list: HTMLElement, { head, ranks }: State, order: string[]): void {
    const elements: [HTMLElement, string][] = [];
    for (const rank of order) {
      const state = ranks[rank];
      if (state === undefined) continue;
      let row = this.#rows.get(rank);
      if (row === undefined) {
        row = new Row(
          rank,
          () => this.#toggle(rank),
          () => this.#send({ cmd: "stack", rank: +rank }),
          () => new LogView({ rank: +rank, title: this.#title }, this.#questions, true),
        );
        this.#rows.set(rank, row);
      }
      row.update(state, this.#open.has(rank), head.metric_names);
      elements.push([row.element, state.host]);
    }
    setChildren(list, this.#headings.get(list)?.insert(elements) ?? []);
    list.hidden = elements.length === 0;
  }

  #toggle(rank: string): void {
    if (!this.#open.delete(rank)) {
      this.#open.add(rank);
    } else if (this.#grid && this.#rows.get(rank)?.element.contains(document.activeElement)) {
      this.#grid.focus(rank); // its row, which has the focus, is removed
    }
    this.#send({ cmd: "expanded", ranks: [...this.#open].map(Number) });
    this.#redraw();
  }
}
