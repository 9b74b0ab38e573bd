import { render, type TemplateResult } from "lit-html";
import { live } from "lit-html/directives/live.js";
import { make, OWN_KEYS } from "../dom";
import { options } from "../elements";
import type { EarlierJob } from "../model";
import { html } from "../template";
import type { Scale } from "./lines";

/** How the user looks at an enlarged chart. It stays when another chart is enlarged. */
export interface Look extends Scale {
  byRank: boolean;
  /** The ID of an earlier job that is drawn behind; empty if there is none. */
  earlier: string;
}

interface Actions {
  /** The look has changed. */
  look: (change: Partial<Look>) => void;
  add: (metric: string) => void;
  reset: () => void;
  csv: () => void;
  png: () => void;
}

/** The controls of an enlarged chart. */
export class Tools {
  readonly element = make("div", "na-chart-tools", { role: "group", "aria-label": "Chart", ...OWN_KEYS });
  #look: Look;
  #actions: Actions;
  #jobs: EarlierJob[] = [];
  #addable: string[] = [];
  #hasRanks = false;
  #isZoomed = false;

  constructor(look: Look, actions: Actions) {
    this.#look = look;
    this.#actions = actions;
    this.element.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" && !event.ctrlKey && !event.metaKey) event.stopPropagation(); // the notebook has shortcuts
    });
    this.#draw();
  }

  /**
   * @param addable The metrics that are not in the chart.
   * @param hasRanks Whether there are several ranks.
   */
  update(addable: string[], hasRanks: boolean, isZoomed: boolean): void {
    this.#addable = addable;
    this.#hasRanks = hasRanks;
    this.#isZoomed = isZoomed;
    this.#draw();
  }

  /** The earlier jobs that the user may choose. */
  set jobs(jobs: EarlierJob[]) {
    this.#jobs = jobs;
    this.#draw();
  }

  /** What an earlier job is called. */
  jobLabel(id: string): string {
    return this.#jobs.find((job) => job.id === id)?.label ?? "";
  }

  #draw(): void {
    const { look, add, reset, csv, png } = this.#actions;
    const { log, byRank, smoothing, earlier } = this.#look;
    const metrics = this.#addable.map((name): [string, string] => [name, name]);
    const jobs = this.#jobs.map(({ id, label }): [string, string] => [id, label]);
    const noJob = jobs.length > 0 ? "Compare with…" : "No earlier job";
    render(
      html`<select class="na-select" aria-label="Add a metric to the chart" data-lm-suppress-shortcuts="true"
        ?hidden=${metrics.length === 0} @change=${(event: Event) => add(chosenIn(event))}>${options([["", "Add…"], ...metrics], "")}</select>
      ${logButton(log, look)}
      <button type="button" class="na-tool" title="A line for each rank, instead of the mean and the range"
        aria-pressed=${String(byRank)} ?hidden=${!this.#hasRanks} @click=${() => look({ byRank: !byRank })}>Each rank</button>
      ${smoothingSlider(smoothing, look)}
      <select class="na-select" aria-label="Compare with an earlier job" data-lm-suppress-shortcuts="true"
        ?disabled=${jobs.length === 0} @change=${(event: Event) => look({ earlier: chosenIn(event) })}>${options([["", noJob], ...jobs], earlier)}</select>
      <span class="na-space"></span>
      <button type="button" class="na-tool" ?hidden=${!this.#isZoomed} @click=${reset}>Reset zoom</button>
      <button type="button" class="na-tool" title="Download the values as CSV" @click=${csv}>CSV</button>
      <button type="button" class="na-tool" title="Download the chart as PNG" @click=${png}>PNG</button>`,
      this.element,
    );
  }
}

/** A button that switches a logarithmic axis on and off. */
export function logButton(log: boolean, change: (change: Partial<Scale>) => void): TemplateResult {
  return html`<button type="button" class="na-tool" title="Logarithmic values" aria-pressed=${String(log)}
    @click=${() => change({ log: !log })}>Log</button>`;
}

/** A slider for the smoothing of lines. */
export function smoothingSlider(smoothing: number, change: (change: Partial<Scale>) => void): TemplateResult {
  const strength = smoothing > 0 ? smoothing.toFixed(2) : "off";
  return html`<label class="na-smoothing">Smoothing
    <input class="na-slider" type="range" min="0" max="0.99" step="0.01" data-lm-suppress-shortcuts="true"
      .value=${live(String(smoothing))} aria-valuetext=${strength}
      @input=${(event: Event) => change({ smoothing: Number(chosenIn(event)) })}>
    <output class="na-strength">${strength}</output>
  </label>`;
}

function chosenIn(event: Event): string {
  return (event.target as HTMLInputElement | HTMLSelectElement).value;
}
