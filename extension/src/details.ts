import { ProgressBar } from "./bar";
import { inOrder, inOrderOf, make, OWN_KEYS, percent, setAttribute, setChildren, setText } from "./dom";
import { drawKeyValueList } from "./keyValueList";
import type { LogView } from "./logs/logView";
import type { Bar, Rank } from "./model";

const ENDED: Rank["phase"][] = ["done", "failed", "stopped"];

/** The expanded part of a row: a rank's stack, all its progress bars, all its metrics, its output. */
export class Details {
  readonly element: HTMLElement;
  #bars = make("div", "na-subbars");
  #activity = make("div", "na-doing");
  #values = make("div", "na-all-values");
  #stack: HTMLPreElement;
  #ask = make("button", "na-ask", { type: "button" }, "Where is it now?");
  #log: LogView;
  #bar = new Map<string, Subbar>();
  #drawn: Partial<Rank> = {};

  constructor(rank: string, id: string, onAsk: () => void, log: LogView) {
    const stack = { tabindex: "0", role: "group", "aria-label": `Python stack of rank ${rank}`, ...OWN_KEYS };
    this.#stack = make("pre", "na-stack", stack);
    this.#stack.hidden = true;
    setAttribute(this.#ask, "title", `Show the Python stack of rank ${rank}`);
    this.#ask.addEventListener("click", onAsk);
    this.#log = log;
    const label = { id, role: "group", "aria-label": `Details of rank ${rank}` };
    // The button is first, so that it stays in its place under the pointer while bars and values come and go.
    this.element = make("div", "na-details", label, this.#ask, this.#stack, this.#bars);
    this.element.append(this.#activity, this.#values, this.#log.element);
  }

  /** @param names All metrics, in their order. */
  update(rank: Rank, names: string[]): void {
    if (rank.bars !== this.#drawn.bars) this.#drawBars(rank.bars);
    this.#drawValues(rank, names);
    if (rank.stack !== this.#drawn.stack) this.#drawStack(rank.stack);
    this.#log.update(rank.lines);
    this.#ask.hidden = ENDED.includes(rank.phase);
    this.#drawn = rank;
  }

  dispose(): void {
    this.#log.dispose();
    this.element.remove();
  }

  #drawBars(bars: Record<string, Bar>): void {
    for (const number of this.#bar.keys()) if (!(number in bars)) this.#bar.delete(number);
    const elements = inOrder(bars).map(([number, bar]) => {
      let drawn = this.#bar.get(number);
      if (drawn === undefined) {
        drawn = new Subbar();
        this.#bar.set(number, drawn);
      }
      drawn.update(bar);
      return drawn.element;
    });
    setChildren(this.#bars, elements);
  }

  #drawValues(rank: Rank, names: string[]): void {
    setText(this.#activity, rank.detail);
    const memory: [string, string][] = rank.memory ? [["memory", rank.memory]] : [];
    drawKeyValueList(this.#values, [...inOrderOf(names, rank.values), ...memory, ...Object.entries(rank.usage_facts)]);
  }

  #drawStack(stack: string): void {
    setText(this.#stack, stack);
    this.#stack.hidden = stack === "";
    this.#stack.scrollTop = this.#stack.scrollHeight; // the innermost frame is the last
  }
}

class Subbar {
  readonly element: HTMLElement;
  #name = make("span", "na-subname");
  #bar = new ProgressBar("na-bar", "");
  #percent = make("span", "na-percent");
  #amount = make("span", "na-amount");
  #time = make("span", "na-remaining");

  constructor() {
    this.element = make("div", "na-subbar", {}, this.#name, this.#bar.element, this.#percent, this.#amount, this.#time);
  }

  update(bar: Bar): void {
    setText(this.#name, bar.description);
    this.#name.style.paddingInlineStart = `${bar.depth}em`;
    setAttribute(this.#bar.element, "aria-label", bar.description || "progress");
    const label = [bar.amount, bar.rate, bar.postfix].filter(Boolean).join("  ");
    this.#bar.update(bar.done, label);
    setText(this.#percent, percent(bar.done));
    setText(this.#amount, label);
    setText(this.#time, bar.time_left && `${bar.time_left} left`);
    setAttribute(this.element, "data-closed", bar.closed ? "" : null);
  }
}
