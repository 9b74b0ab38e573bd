import { make, OWN_KEYS, setAttribute, setChildren } from "../dom";
import type { EarlierJob } from "../model";

/** How the user looks at an enlarged chart. It stays when another chart is enlarged. */
export interface Look {
  log: boolean;
  byRank: boolean;
  /** From 0 to 0.99. */
  smoothing: number;
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
  readonly element: HTMLElement;
  #add = make("select", "na-select", { "aria-label": "Add a metric to the chart", ...OWN_KEYS });
  #earlier = make("select", "na-select", { "aria-label": "Compare with an earlier job", ...OWN_KEYS });
  #log = toggle("Log", "Logarithmic values");
  #ranks = toggle("Each rank", "A line for each rank, instead of the mean and the range");
  #smoothing: HTMLInputElement;
  #strength = make("output", "na-strength");
  #reset = make("button", "na-tool", { type: "button" }, "Reset zoom");
  #jobs: EarlierJob[] = [];

  constructor(look: Look, actions: Actions) {
    const range = { type: "range", min: "0", max: "0.99", step: "0.01" };
    this.#smoothing = make("input", "na-slider", { ...range, ...OWN_KEYS });
    this.#smoothing.addEventListener("input", () => {
      actions.look({ smoothing: Number(this.#smoothing.value) });
    });
    this.#log.addEventListener("click", () => actions.look({ log: this.#log.ariaPressed !== "true" }));
    this.#ranks.addEventListener("click", () => actions.look({ byRank: this.#ranks.ariaPressed !== "true" }));
    this.#earlier.addEventListener("change", () => actions.look({ earlier: this.#earlier.value }));
    this.#add.addEventListener("change", () => {
      if (this.#add.value) actions.add(this.#add.value);
    });
    this.#reset.addEventListener("click", actions.reset);
    const csv = make("button", "na-tool", { type: "button", title: "Download the values as CSV" }, "CSV");
    const png = make("button", "na-tool", { type: "button", title: "Download the picture as PNG" }, "PNG");
    csv.addEventListener("click", actions.csv);
    png.addEventListener("click", actions.png);
    const smoothing = make("label", "na-smoothing", {}, "Smoothing", this.#smoothing, this.#strength);
    const left = [this.#add, this.#log, this.#ranks, smoothing, this.#earlier];
    this.element = make("div", "na-chart-tools", { role: "group", "aria-label": "Chart", ...OWN_KEYS });
    this.element.append(...left, make("span", "na-space"), this.#reset, csv, png);
    this.element.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" && !event.ctrlKey && !event.metaKey) event.stopPropagation(); // the notebook has shortcuts
    });
    this.setJobs([], look);
    this.update(look, [], false, false);
  }

  /**
   * @param addable The metrics that are not in the chart.
   * @param hasRanks Whether there are several ranks.
   */
  update(look: Look, addable: string[], hasRanks: boolean, isZoomed: boolean): void {
    setAttribute(this.#log, "aria-pressed", String(look.log));
    setAttribute(this.#ranks, "aria-pressed", String(look.byRank));
    this.#ranks.hidden = !hasRanks;
    this.#reset.hidden = !isZoomed;
    this.#smoothing.value = String(look.smoothing);
    this.#strength.textContent = look.smoothing > 0 ? look.smoothing.toFixed(2) : "off";
    setAttribute(this.#smoothing, "aria-valuetext", this.#strength.textContent);
    if (addable.join("\n") !== this.#add.dataset.names) {
      this.#add.dataset.names = addable.join("\n");
      setOptions(
        this.#add,
        "Add…",
        addable.map((name) => [name, name]),
      );
    }
    this.#add.hidden = addable.length === 0;
  }

  /** Sets the earlier jobs that the user may choose. */
  setJobs(jobs: EarlierJob[], look: Look): void {
    this.#jobs = jobs;
    setOptions(
      this.#earlier,
      jobs.length > 0 ? "Compare with…" : "No earlier job",
      jobs.map(({ id, label }) => [id, label]),
    );
    this.#earlier.disabled = jobs.length === 0;
    this.#earlier.value = look.earlier;
  }

  /** What an earlier job is called. */
  jobLabel(id: string): string {
    return this.#jobs.find((job) => job.id === id)?.label ?? "";
  }
}

function toggle(text: string, title: string): HTMLButtonElement {
  return make("button", "na-tool", { type: "button", title, "aria-pressed": "false" }, text);
}

function setOptions(select: HTMLSelectElement, first: string, options: [string, string][]): void {
  const all: [string, string][] = [["", first], ...options];
  setChildren(
    select,
    all.map(([value, text]) => make("option", "", { value }, text)),
  );
  select.value = "";
}
