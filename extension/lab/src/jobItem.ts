/** One job in the sidebar. */
import { nothing, type TemplateResult } from "lit-html";
import { live } from "lit-html/directives/live.js";
import { percent } from "../../src/dom";
import { progressBar } from "../../src/elements";
import { html } from "../../src/template";
import { statusText } from "./jobs";
import type { JobRow } from "./model";
import { sparkline } from "./sparkline";

/** What the buttons of a job do. */
export interface JobActions {
  open(row: JobRow): void;
  stop(row: JobRow): void;
  attach(row: JobRow): void;
  resume(row: JobRow): void;
  /** Runs the cell again that has launched the job. */
  runAgain(row: JobRow): void;
  /** Asks for another name, notes, and a pin. */
  edit(row: JobRow): void;
  pin(row: JobRow): void;
  remove(row: JobRow): void;
  /** The user has chosen a job for a comparison, or no longer does. */
  choose(row: JobRow, isChosen: boolean): void;
}

const OPEN = "Open the job's panel in a tab";
const ATTACH = "Insert a cell that shows the job, below the active cell";
const RESUME = "Insert a cell that continues the training, below the active cell";
const RUN_AGAIN = "Run the cell again that launched the job";
const EDIT = "Change the name, the notes, and the pin";
const DELETE = "Delete the record of the job";
const STOP = "Stop the ranks, as Stop in the panel does";
const KILL = "Kill the ranks now";

export function jobItem(row: JobRow, isChosen: boolean, actions: JobActions): TemplateResult {
  const [metric] = row.metrics;
  const button = (isShown: boolean, label: string, title: string, act: (row: JobRow) => void) =>
    isShown
      ? html`<button type="button" class="na-lab-button jp-mod-styled" title=${title}
          aria-label="${label} ${row.title}, job ${row.id}" @click=${() => act(row)}>${label}</button>`
      : nothing;
  const value = ({ name, value, lines }: JobRow["metrics"][number]) => {
    return html`<div class="na-lab-metric">
      ${sparkline(`${name} over the run`, lines)}
      <span class="na-lab-metric-name" title=${name}>${name}</span> <span class="na-lab-value">${value}</span>
    </div>`;
  };
  const pin = html`<button type="button" class="na-lab-pin" title=${row.pinned ? "Unpin" : "Pin to the top of the list"}
    aria-label="Pin ${row.title}, job ${row.id}" aria-pressed=${row.pinned}
    @click=${() => actions.pin(row)}>${row.pinned ? "★" : "☆"}</button>`;
  const edit = html`<button type="button" class="na-lab-edit" title=${EDIT}
    aria-label="Edit ${row.title}, job ${row.id}" @click=${() => actions.edit(row)}>✎</button>`;
  return html`<li class="na-lab-job" data-job=${row.id} data-status=${row.status} data-state=${row.state}>
    <div class="na-lab-heading">
      <input class="na-lab-choice" type="checkbox" title="Select this job for a comparison"
        aria-label="Compare ${row.title}, job ${row.id}" .checked=${live(isChosen)}
        @change=${(event: Event) => actions.choose(row, (event.target as HTMLInputElement).checked)}>
      <span class="na-lab-title" title=${row.title}>${row.title}</span>
      ${row.code ? [edit, pin] : nothing}
    </div>
    ${row.done >= 0 ? progressBar("na-bar na-lab-bar", `Progress of ${row.title}`, row.done, percent(row.done)) : nothing}
    <div class="na-lab-summary">
      <span class="na-status na-lab-status" data-state=${row.state}>${statusText(row)}</span>
      <span>${row.summary}</span>
    </div>
    ${metric ? value(metric) : nothing}
    ${row.note ? html`<div class="na-lab-note">${row.note}</div>` : nothing}
    ${row.notes ? html`<div class="na-lab-notes">${row.notes}</div>` : nothing}
    <div class="na-lab-details">${row.details}</div>
    <div class="na-lab-buttons">
      ${button(row.code !== "", "Open", OPEN, actions.open)}
      ${button(row.live, row.stopping ? "Kill" : "Stop", row.stopping ? KILL : STOP, actions.stop)}
      ${button(row.code !== "", "Attach", ATTACH, actions.attach)}
      ${button(row.resumable, "Resume", RESUME, actions.resume)}
      ${button(!row.live && row.cell !== "", "Run Again", RUN_AGAIN, actions.runAgain)}
      ${button(!row.live, "Delete", DELETE, actions.remove)}
    </div>
  </li>`;
}
