import { render, type TemplateResult } from "lit-html";
import { live } from "lit-html/directives/live.js";
import { make } from "../dom";
import { matches, searchField } from "../search";
import { html } from "../template";
import { type Choice, moved, ordered, toggled, visible } from "./choice";

/** From this many metrics on, the list has a search. */
const SEARCH_FROM = 8;

/** The list with which the user chooses charts and their order. */
export class Chooser {
  readonly element = make("details", "na-choose");
  #onChange: (choice: Choice) => void;
  #names: string[] = [];
  #choice: Choice = { order: [], hidden: [] };
  #query = "";

  constructor(onChange: (choice: Choice) => void) {
    this.#onChange = onChange;
    this.element.addEventListener("toggle", () => this.#draw());
  }

  update(names: string[], choice: Choice): void {
    if (names === this.#names && choice === this.#choice) return;
    this.#names = names;
    this.#choice = choice;
    this.element.hidden = names.length < 2;
    this.#draw();
  }

  #draw(): void {
    const names = this.#names;
    const shown = visible(names, this.#choice);
    const all = this.element.open ? ordered(names, this.#choice) : [];
    const items = all
      .map((name, index) => ({ name, index }))
      .filter(({ name }) => matches(this.#query, [name]))
      .map(({ name, index }) => this.#item(name, shown.includes(name), index, all.length));
    const onSearch = (search: string) => {
      this.#query = search;
      this.#draw();
    };
    const focused = (document.activeElement as HTMLElement | null)?.dataset.key;
    render(
      html`<summary class="na-fold">Choose charts <span class="na-count">${
        shown.length < names.length ? `(${shown.length} of ${names.length})` : ""
      }</span></summary>
      ${searchField("Search metrics", onSearch, names.length < SEARCH_FROM)}
      <ul class="na-choose-list">${items}</ul>`,
      this.element,
    );
    for (const button of this.element.querySelectorAll<HTMLElement>("[data-key]")) {
      if (button.dataset.key === focused) button.focus();
    }
  }

  #item(name: string, isShown: boolean, index: number, count: number): TemplateResult {
    const move = (by: number, symbol: string, words: string) => {
      const onClick = () => this.#onChange(moved(this.#names, this.#choice, name, by));
      return html`<button type="button" class="na-icon" aria-label="Move ${name} ${words}" data-key="${words} ${name}"
        ?disabled=${index + by < 0 || index + by >= count} @click=${onClick}>${symbol}</button>`;
    };
    const onChange = () => this.#onChange(toggled(this.#names, this.#choice, name));
    return html`<li>
      <label class="na-choose-name" title=${name}>
        <input type="checkbox" data-key="show ${name}" .checked=${live(isShown)} @change=${onChange}>
        <span>${name}</span>
      </label>
      ${move(-1, "↑", "up")}${move(1, "↓", "down")}
    </li>`;
  }
}
