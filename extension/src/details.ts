import { nothing, type TemplateResult } from "lit-html";
import { inOrder, inOrderOf, make, newId, OWN_KEYS, percent, setText } from "./dom";
import { pairs, progressBar, timeLeft } from "./elements";
import { hasEnded } from "./kernelLost";
import type { LogView } from "./logs/logView";
import type { Bar, Rank } from "./model";
import { html } from "./template";

/** The expanded part of a row: a rank's stack, all its progress bars, all its metrics, its output. */
export class Details {
  readonly id = newId();
  readonly #rank: string;
  readonly #onAsk: () => void;
  readonly #log: LogView;
  readonly #stack: HTMLPreElement;
  #shown = "";

  /** @param onAsk Called when the user asks for the rank's stack. */
  constructor(rank: string, onAsk: () => void, log: LogView) {
    this.#rank = rank;
    this.#onAsk = onAsk;
    this.#log = log;
    const stack = { tabindex: "0", role: "group", "aria-label": `Python stack of rank ${rank}`, ...OWN_KEYS };
    this.#stack = make("pre", "na-stack", stack);
    this.#stack.hidden = true;
  }

  /** @param names All metrics, in their order. */
  draw(rank: Rank, names: string[]): TemplateResult {
    const memory: [string, string][] = rank.memory ? [["memory", rank.memory]] : [];
    const values = [...inOrderOf(names, rank.values), ...memory, ...Object.entries(rank.usage_facts)];
    // The button is first, so that it stays in its place under the pointer while bars and values come and go.
    return html`<div id=${this.id} class="na-details" role="group" aria-label="Details of rank ${this.#rank}">
      <button type="button" class="na-ask" title="Show the Python stack of rank ${this.#rank}"
        ?hidden=${hasEnded(rank)} @click=${this.#onAsk}>Where is it now?</button>
      ${this.#stack}
      <div class="na-subbars">${inOrder(rank.bars)
        .map(([, bar]) => bar)
        .sort((one, other) => Number(one.closed) - Number(other.closed) || one.depth - other.depth)
        .map(subbar)}</div>
      <div class="na-doing">${rank.detail}</div>
      <div class="na-all-values">${pairs(values)}</div>
      ${this.#log.element}
    </div>`;
  }

  /** Updates what scrolls, once the rest has been drawn. */
  update(rank: Rank): void {
    this.#log.update(rank.lines);
    if (rank.stack === this.#shown) return;
    this.#shown = rank.stack;
    setText(this.#stack, rank.stack);
    this.#stack.hidden = rank.stack === "";
    this.#stack.scrollTop = this.#stack.scrollHeight; // the innermost frame is the last
  }

  dispose(): void {
    this.#log.dispose();
  }
}

function subbar(bar: Bar): TemplateResult {
  const amount = [bar.amount, bar.rate, bar.postfix].filter(Boolean).join("  ");
  return html`<div class="na-subbar" data-closed=${bar.closed ? "" : nothing}>
    <span class="na-subname" .style=${`padding-inline-start: ${bar.depth}em`}>${bar.description}</span>
    ${progressBar("na-bar", bar.description || "progress", bar.done, amount)}
    <span class="na-percent">${percent(bar.done)}</span>
    <span class="na-amount">${amount}</span>
    <span class="na-remaining">${timeLeft(bar)}</span>
  </div>`;
}
