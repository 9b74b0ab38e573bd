/** The table of a comparison: a row for each job, which can be sorted and filtered, and is the legend of the chart. */
import { nothing, render } from "lit-html";
import { colorOf } from "../../src/charts/palette";
import { make, OWN_KEYS } from "../../src/dom";
import { matches, searchField } from "../../src/search";
import { html } from "../../src/template";
import type { Run } from "./model";

export class RunTable {
  readonly element = make("div", "na-lab-runs", OWN_KEYS);
  private runs: Run[] = [];
  private search = "";
  /** The title of the column that the rows are sorted by; empty if they are in the order in which the jobs were chosen. */
  private column = "";
  private isDescending = false;

  /**
   * @param changed - Called when the user has filtered the runs.
   * @param edit - Asks for another name, notes, and a pin of a job.
   */
  constructor(
    private readonly changed: () => void,
    private readonly edit: (job: string) => void,
  ) {}

  update(runs: Run[]): void {
    this.runs = runs;
    this.draw();
  }

  /** Whether a run has every word that the user has typed. */
  shows(run: Run): boolean {
    return matches(this.search, [run.label, run.problem, ...run.facts.map((fact) => fact.text)]);
  }

  private draw(): void {
    const known = this.runs.flatMap((run) => run.facts).filter((fact) => fact.text);
    const titles = [...new Set(known.map((fact) => fact.name))];
    const onSearch = (search: string) => {
      this.search = search;
      this.draw();
      this.changed();
    };
    render(
      html`${searchField("Filter jobs", onSearch)}
      <table>
        <thead><tr>${["Job", ...titles].map((title) => this.heading(title))}</tr></thead>
        <tbody>${this.sorted().map((run) => this.row(run, titles))}</tbody>
      </table>`,
      this.element,
    );
  }

  private heading(title: string) {
    const isSorted = title === this.column;
    const onClick = () => {
      this.isDescending = isSorted && !this.isDescending;
      this.column = title;
      this.draw();
    };
    const sort = this.isDescending ? "descending" : "ascending";
    return html`<th scope="col" aria-sort=${isSorted ? sort : nothing}>
      <button type="button" title="Sort by ${title}" @click=${onClick}>${title}${isSorted ? (this.isDescending ? " ↓" : " ↑") : ""}</button>
    </th>`;
  }

  private row(run: Run, titles: string[]) {
    const label = run.problem ? `${run.label}: ${run.problem}` : run.label;
    const color = colorOf(this.runs.indexOf(run));
    const cells = titles.map((title) => {
      const fact = run.facts.find((each) => each.name === title);
      return html`<td title=${fact?.text || nothing} class=${fact?.order == null ? nothing : "na-lab-number"}>${fact?.text ?? ""}</td>`;
    });
    return html`<tr data-job=${run.id}>
      <th scope="row" title="Job ${run.id}">
        <span class="na-swatch" .style=${`background: ${color}`}></span>
        <span class="na-lab-run" title=${label}>${label}</span>
        <button type="button" class="na-lab-edit" title="Change the name, the notes, and the pin"
          aria-label="Edit ${run.label}" @click=${() => this.edit(run.id)}>✎</button>
      </th>${cells}
    </tr>`;
  }

  private sorted(): Run[] {
    const found = this.runs.filter((run) => this.shows(run));
    if (!this.column) return found;
    const key = (run: Run) =>
      run.facts.find((fact) => fact.name === this.column) ?? {
        text: this.column === "Job" ? run.label : "",
        order: null,
      };
    const compared = (one: Run, other: Run) => {
      const [first, second] = [key(one), key(other)];
      if (first.order !== null && second.order !== null) return first.order - second.order;
      return first.text.localeCompare(second.text);
    };
    found.sort(compared);
    return this.isDescending ? found.reverse() : found;
  }
}
