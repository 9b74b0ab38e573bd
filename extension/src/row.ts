import { nothing, type TemplateResult } from "lit-html";
import type { Details } from "./details";
import { inOrderOf, percent } from "./dom";
import { progressBar, timeLeft } from "./elements";
import type { Rank } from "./model";
import { html } from "./template";

/**
 * One rank: a line, and its details if the row is expanded.
 *
 * @param names All metrics, in their order.
 * @param onToggle Called when the user expands or collapses the row.
 */
export function row(
  number: string,
  rank: Rank,
  names: string[],
  details: Details | undefined,
  onToggle: () => void,
): TemplateResult {
  // A click anywhere on the line expands it, unless it selects text; keyboards and screen readers use the button.
  const onClick = ({ target }: MouseEvent) => {
    if ((target as Element).closest(".na-toggle") || !window.getSelection()?.toString()) onToggle();
  };
  const words = [rank.text, timeLeft(rank)].filter(Boolean).join(", ");
  const values = inOrderOf(names, rank.values);
  const valueLines = values.map(([name, value]) => `${name} ${value}`).join("\n");
  const cells = names.map((name) => {
    const value = rank.values[name];
    const label = value === undefined ? nothing : html`<span class="na-unseen">${name} </span>`;
    return html`<span class="na-number">${label}<span>${value}</span></span>`;
  });
  const usage = [rank.memory, ...Object.entries(rank.usage_facts).map(([name, value]) => `${name}: ${value}`)];
  return html`<div class="na-row" role="listitem" data-rank=${number} data-phase=${rank.phase}
    data-marked=${rank.mark ? "" : nothing}>
    <div class="na-line" @click=${onClick}>
      <button type="button" class="na-toggle" aria-label="Details of rank ${number}"
        aria-expanded=${String(details !== undefined)} aria-controls=${details?.id ?? nothing}>
        <span class="na-chevron"></span>
      </button>
      <span class="na-rank">${number}</span>
      <span class="na-phase">
        <span class="na-dot" aria-hidden="true"></span>
        <span class="na-word" title=${rank.detail || nothing}>${rank.phase}</span>
      </span>
      ${progressBar("na-bar", `Rank ${number}`, rank.done, words)}
      <span class="na-percent">${percent(rank.done)}</span>
      <span class="na-words">
        <span class="na-mark" ?hidden=${!rank.mark}>${rank.mark}</span>
        <span class="na-text" title=${rank.text || nothing}>${rank.text}</span>
      </span>
      <span class="na-remaining">${timeLeft(rank)}</span>
      <span class="na-values" title=${valueLines || nothing}>${cells}</span>
      <span class="na-memory" title=${usage.filter(Boolean).join("\n") || nothing}>${rank.usage}</span>
    </div>
    <div class="na-error" data-consequence=${rank.is_consequence ? "" : nothing} ?hidden=${!rank.error}>${rank.error}</div>
    <div class="na-warning" ?hidden=${!rank.warning}>${rank.warning}</div>
    ${details?.draw(rank, names)}
  </div>`;
}

/** The titles of the columns. A metric is as wide as its values, and those that don't fit are left out. */
export function heading(names: string[]): TemplateResult {
  return html`<div class="na-line na-titles" aria-hidden="true">
    <span class="na-rank">Rank</span>
    <span class="na-phase">State</span>
    <span class="na-words">Progress</span>
    <span class="na-remaining">Left</span>
    <span class="na-values">${names.map((name) => html`<span class="na-number" title=${name}>${name}</span>`)}</span>
    <span class="na-memory">Usage</span>
  </div>`;
}
