import { ProgressBar } from "./bar";
import { Details } from "./details";
import { inOrderOf, make, newId, percent, setAttribute, setText } from "./dom";
import { drawKeyValueList } from "./keyValueList";
import type { LogView } from "./logs/logView";
import type { Rank } from "./model";

/** One rank: a line, and its details if the row is expanded. */
export class Row {
  readonly element: HTMLElement;
  readonly #rank: string;
  readonly #toggle: HTMLButtonElement;
  readonly #detailsId = newId();
  readonly #onAsk: () => void;
  readonly #openLog: () => LogView;
  #phase = make("span", "na-word");
  #bar: ProgressBar;
  #percent = make("span", "na-percent");
  #mark = make("span", "na-mark");
  #text = make("span", "na-text");
  #timeLeft = make("span", "na-remaining");
  #values = make("span", "na-values");
  #memory = make("span", "na-memory");
  #error = make("div", "na-error");
  #warning = make("div", "na-warning");
  #details: Details | undefined;
  #drawn: Rank | undefined;

  /**
   * @param onToggle Called when the user expands or collapses the row.
   * @param onAsk Called when the user asks for the rank's stack.
   * @param openLog Makes the log of the expanded row.
   */
  constructor(rank: string, onToggle: () => void, onAsk: () => void, openLog: () => LogView) {
    this.#rank = rank;
    this.#openLog = openLog;
    this.#onAsk = onAsk;
    this.#toggle = make(
      "button",
      "na-toggle",
      { type: "button", "aria-expanded": "false" },
      make("span", "na-chevron"),
    );
    this.#toggle.setAttribute("aria-label", `Details of rank ${rank}`);
    this.#toggle.addEventListener("click", onToggle);
    this.#bar = new ProgressBar("na-bar", `Rank ${rank}`);
    const phase = make("span", "na-phase", {}, make("span", "na-dot", { "aria-hidden": "true" }), this.#phase);
    const line = make(
      "div",
      "na-line",
      {},
      this.#toggle,
      make("span", "na-rank", {}, rank),
      phase,
      this.#bar.element,
      this.#percent,
      make("span", "na-words", {}, this.#mark, this.#text),
      this.#timeLeft,
      this.#values,
      this.#memory,
    );
    // A click anywhere on the line expands it; keyboards and screen readers use the button.
    line.addEventListener("click", (event) => {
      if (!this.#toggle.contains(event.target as Node) && !window.getSelection()?.toString()) onToggle();
    });
    this.element = make("div", "na-row", { role: "listitem", "data-rank": rank }, line, this.#error, this.#warning);
    this.#error.hidden = true;
    this.#warning.hidden = true;
    this.#mark.hidden = true;
  }

  /** @param names All metrics, in their order. */
  update(rank: Rank, open: boolean, names: string[]): void {
    if (rank !== this.#drawn) this.#draw(rank, names);
    this.#setExpanded(rank, open, names);
    this.#drawn = rank;
  }

  focus(): void {
    this.#toggle.focus();
  }

  #draw(rank: Rank, names: string[]): void {
    setAttribute(this.element, "data-phase", rank.phase);
    setAttribute(this.element, "data-marked", rank.mark ? "" : null);
    setText(this.#phase, rank.phase);
    setAttribute(this.#phase, "title", rank.detail || null);
    this.#bar.update(rank.done, [rank.text, rank.time_left && `${rank.time_left} left`].filter(Boolean).join(", "));
    setText(this.#percent, percent(rank.done));
    setText(this.#mark, rank.mark);
    this.#mark.hidden = rank.mark === "";
    setText(this.#text, rank.text);
    setAttribute(this.#text, "title", rank.text || null);
    setText(this.#timeLeft, rank.time_left && `${rank.time_left} left`);
    this.#drawValues(rank.values, names);
    setText(this.#memory, rank.usage);
    setAttribute(this.#memory, "title", tooltip(rank) || null);
    setText(this.#error, rank.error);
    this.#error.hidden = rank.error === "";
    setText(this.#warning, rank.warning);
    this.#warning.hidden = rank.warning === "";
  }

  #drawValues(values: Record<string, string>, names: string[]): void {
    if (values === this.#drawn?.values) return;
    const entries = inOrderOf(names, values);
    setAttribute(this.#values, "title", entries.map(([name, value]) => `${name} ${value}`).join("\n") || null);
    drawKeyValueList(this.#values, entries);
  }

  #setExpanded(rank: Rank, open: boolean, names: string[]): void {
    setAttribute(this.#toggle, "aria-expanded", String(open));
    if (!open) {
      this.#details?.dispose();
      this.#details = undefined;
      setAttribute(this.#toggle, "aria-controls", null);
      return;
    }
    if (this.#details === undefined) {
      this.#details = new Details(this.#rank, this.#detailsId, this.#onAsk, this.#openLog());
      this.element.append(this.#details.element);
      setAttribute(this.#toggle, "aria-controls", this.#detailsId);
    }
    this.#details.update(rank, names);
  }
}

/** What the rank uses, a line each. */
function tooltip(rank: Rank): string {
  const facts = Object.entries(rank.usage_facts).map(([name, value]) => `${name}: ${value}`);
  return [rank.memory, ...facts].filter(Boolean).join("\n");
}
