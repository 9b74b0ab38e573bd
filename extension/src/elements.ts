import { nothing, type TemplateResult } from "lit-html";
import { live } from "lit-html/directives/live.js";
import { styleMap } from "lit-html/directives/style-map.js";
import { percent } from "./dom";
import type { Done } from "./model";
import { html } from "./template";

/** A progress bar. If its total is unknown, it is empty and has no `aria-valuenow`. */
export function progressBar(className: string, label: string, done: Done, text: string): TemplateResult {
  return html`<div class=${className} role="progressbar" aria-label=${label} aria-valuemin="0" aria-valuemax="100"
    aria-valuenow=${done < 0 ? nothing : percent(done).slice(0, -1)} aria-valuetext=${text || nothing}>
    <div class="na-fill" style=${styleMap({ transform: `scaleX(${Math.max(0, done) / 1000})` })}></div>
  </div>`;
}

/** Names with their values. */
export function pairs(values: [string, string][]): TemplateResult[] {
  return values.map(
    ([name, value]) =>
      html`<span class="na-pair"><span class="na-key">${name}</span> <span class="na-number">${value}</span></span>`,
  );
}

/** The options of a select element: the value and the text of each. */
export function options(values: [string, string][], chosen: string): TemplateResult[] {
  return values.map(
    ([value, text]) => html`<option value=${value} .selected=${live(value === chosen)}>${text}</option>`,
  );
}

/** The time left, in words; empty if it is unknown. */
export function timeLeft(of: { time_left: string }): string {
  return of.time_left && `${of.time_left} left`;
}

/**
 * Ranks, and if they are on several nodes, headings: one before each rank whose host differs from that of the rank before.
 *
 * @param ranks What stands for each rank, and its host.
 * @param heading Makes a heading, given its text and the index of the rank below it.
 */
export function withHeadings<T>(ranks: [T, string][], heading: (host: string, index: number) => T): T[] {
  return ranks.flatMap(([rank, host], index) =>
    host === (ranks[index - 1]?.[1] ?? "") ? [rank] : [heading(host, index), rank],
  );
}

/**
 * A button for a job that only the extension of JupyterLab makes visible, and understands: as `lab_button` in pictures.py.
 * @param kind - The class by which `lab/style/index.css` shows it, with its text.
 * @param command - One of `lab/src/commands.ts`.
 * @param label - What it does, for screen readers.
 */
export function labButton(kind: string, command: string, label: string, job: string): TemplateResult {
  return html`<button type="button" class="na-lab-command ${kind}" style="display:none" aria-label=${label}
    data-commandlinker-command=${command} data-commandlinker-args=${JSON.stringify({ job })}></button>`;
}
