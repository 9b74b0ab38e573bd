import { make, setAttribute, setChildren, setText } from "../dom";
import { type Choice, moved, ordered, toggled, visible } from "./choice";

/** From this many metrics on, the list has a search. */
const SEARCH_FROM = 8;

/** The list with which the user chooses charts and their order. */
export class Chooser {
  readonly element: HTMLDetailsElement;
  #list = make("ul", "na-choose-list");
  #search: HTMLInputElement;
  #count = make("span", "na-count");
  #onChange: (choice: Choice) => void;
  #names: string[] = [];
  #choice: Choice = { order: [], hidden: [] };

  constructor(onChange: (choice: Choice) => void) {
    this.#onChange = onChange;
    const search = { type: "search", placeholder: "Search", "aria-label": "Search the metrics" };
    this.#search = make("input", "na-search", search);
    this.#search.addEventListener("input", () => this.#draw());
    this.#search.addEventListener("keydown", (event) => event.stopPropagation()); // the notebook has shortcuts
    const summary = make("summary", "na-fold", {}, "Choose charts ", this.#count);
    this.element = make("details", "na-choose", {}, summary, this.#search, this.#list);
    this.element.addEventListener("toggle", () => this.#draw());
  }

  update(names: string[], choice: Choice): void {
    if (names === this.#names && choice === this.#choice) return;
    this.#names = names;
    this.#choice = choice;
    this.element.hidden = names.length < 2;
    const shown = visible(names, choice).length;
    setText(this.#count, shown < names.length ? `(${shown} of ${names.length})` : "");
    this.#draw();
  }

  #draw(): void {
    this.#search.hidden = this.#names.length < SEARCH_FROM;
    if (!this.element.open) return;
    const focused = (document.activeElement as HTMLElement | null)?.dataset.key;
    const query = this.#search.value.toLowerCase();
    const shown = visible(this.#names, this.#choice);
    const all = ordered(this.#names, this.#choice);
    const items = all
      .filter((name) => name.toLowerCase().includes(query))
      .map((name) => this.#item(name, shown.includes(name), all.indexOf(name), all.length));
    setChildren(this.#list, items);
    for (const button of this.#list.querySelectorAll<HTMLElement>("[data-key]")) {
      if (button.dataset.key === focused) button.focus();
    }
  }

  #item(name: string, isShown: boolean, index: number, count: number): HTMLElement {
    const box = make("input", "", { type: "checkbox", "data-key": `show ${name}` });
    box.checked = isShown;
    box.addEventListener("change", () => this.#onChange(toggled(this.#names, this.#choice, name)));
    const label = make("label", "na-choose-name", { title: name }, box, make("span", "", {}, name));
    const move = (by: number, symbol: string, words: string) => {
      const button = make("button", "na-icon", { type: "button", "aria-label": `Move ${name} ${words}` }, symbol);
      setAttribute(button, "data-key", `${words} ${name}`);
      button.disabled = index + by < 0 || index + by >= count;
      button.addEventListener("click", () => this.#onChange(moved(this.#names, this.#choice, name, by)));
      return button;
    };
    return make("li", "", {}, label, move(-1, "↑", "up"), move(1, "↓", "down"));
  }
}
