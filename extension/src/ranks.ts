import { nothing, render, type TemplateResult } from "lit-html";
import { repeat } from "lit-html/directives/repeat.js";
import { Details } from "./details";
import { make } from "./dom";
import { withHeadings } from "./elements";
import { Grid } from "./grid";
import type { JobLink } from "./jobLink";
import { LogView } from "./logs/logView";
import type { State } from "./model";
import { heading, row } from "./row";
import { html } from "./template";

/** How many of the failed ranks have a row below the grid even if the user has not expanded them. */
const MAX_FAILED_ROWS = 4;

/** All ranks: as rows, or if there are many, as a grid, with rows around it for expanded and failed ranks. */
export class Ranks {
  readonly element = make("div", "na-ranks");
  #grid: Grid | undefined;
  /** Those of the expanded ranks. */
  #details = new Map<string, Details>();
  #redraw: () => void;
  #link: JobLink;
  #title: () => string;

  constructor(redraw: () => void, link: JobLink, title: () => string) {
    this.#redraw = redraw;
    this.#link = link;
    this.#title = title;
  }

  /** Draws what has changed; returns whether anything remains for the next frame. */
  update(state: State): boolean {
    const { head, ranks } = state;
    const failed = head.failed.map(String);
    const isGrid = head.layout === "grid";
    if (isGrid) this.#grid ??= new Grid((rank) => this.#toggle(rank));
    const first = isGrid ? failed.slice(0, MAX_FAILED_ROWS) : [];
    const open = [...this.#details.keys()].sort((one, other) => +one - +other);
    const rest = isGrid ? open.filter((rank) => !first.includes(rank)) : [...failed, ...Object.keys(ranks)];
    const hasMore = this.#grid?.update(ranks, this.#details) ?? false;
    const lists = [this.#list("Ranks that failed", first, state), this.#list("Ranks", rest, state)];
    render(html`${lists[0]}${this.#grid?.element}${lists[1]}`, this.element);
    for (const [rank, details] of this.#details) if (ranks[rank]) details.update(ranks[rank]);
    return hasMore;
  }

  #list(label: string, order: string[], { head, ranks }: State): TemplateResult {
    type Item = [string, TemplateResult];
    const names = reported(head.metric_names, order, ranks);
    const rows = [...new Set(order)].flatMap((number): [Item, string][] => {
      const rank = ranks[number];
      if (rank === undefined) return [];
      const drawn = row(number, rank, names, this.#details.get(number), () => this.#toggle(number));
      return [[[number, drawn], rank.host]];
    });
    const machine = (host: string, index: number): Item => [
      `host ${index}`,
      html`<div class="na-machine" role="listitem">${host}</div>`,
    ];
    const all = withHeadings(rows, machine);
    const items = repeat(
      all,
      ([key]) => key,
      ([, drawn]) => drawn,
    );
    const titles = all.length > 0 ? heading(names) : nothing;
    return html`${titles}<div class="na-rows" role="list" aria-label=${label} ?hidden=${all.length === 0}>${items}</div>`;
  }

  #toggle(rank: string): void {
    const details = this.#details.get(rank);
    if (details === undefined) {
      const log = new LogView({ rank: +rank, title: this.#title }, this.#link, true);
      this.#details.set(rank, new Details(rank, () => this.#link.send({ cmd: "stack", rank: +rank }), log));
    } else {
      details.dispose();
      this.#details.delete(rank);
      const focused = document.activeElement?.closest<HTMLElement>(".na-row");
      if (focused?.dataset.rank === rank) this.#grid?.focus(rank); // a row around a grid is removed
    }
    this.#link.send({ cmd: "expanded", ranks: [...this.#details.keys()].map(Number) });
    this.#redraw();
  }
}

/** The metrics that any of these ranks has, in their order. */
function reported(names: string[], order: string[], ranks: State["ranks"]): string[] {
  return names.filter((name) => order.some((number) => ranks[number] && name in ranks[number].values));
}
