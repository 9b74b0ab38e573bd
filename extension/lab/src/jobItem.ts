/** One job in the sidebar. */
import { ProgressBar } from "../../src/bar";
import { make, percent, setAttribute, setChildren, setText } from "../../src/dom";
import { statusText } from "./jobs";
import type { JobRow } from "./model";
import { Sparkline } from "./sparkline";

/** What the buttons of a job do. */
export interface JobActions {
  open(row: JobRow): void;
  stop(row: JobRow): void;
  attach(row: JobRow): void;
  resume(row: JobRow): void;
  remove(row: JobRow): void;
  /** The user has chosen a job for a comparison, or no longer does. */
  choose(row: JobRow, isChosen: boolean): void;
}

export class JobItem {
  readonly element = make("li", "na-lab-job");
  private row: JobRow;
  private readonly choice = make("input", "na-lab-choice", { type: "checkbox" });
  private readonly title = make("span", "na-lab-title");
  private readonly status = make("span", "na-lab-status");
  private readonly bar = new ProgressBar("na-bar na-lab-bar", "");
  private readonly summary = make("div", "na-lab-summary");
  private readonly spark = new Sparkline();
  private readonly metricName = make("span", "na-lab-metric-name");
  private readonly value = make("span", "na-lab-value");
  private readonly metric = make("div", "na-lab-metric", {}, this.spark.element, this.metricName, " ", this.value);
  private readonly note = make("div", "na-lab-note");
  private readonly details = make("div", "na-lab-details");
  private readonly open = this.button("Open", (actions) => actions.open(this.row));
  private readonly stop = this.button("Stop", (actions) => actions.stop(this.row));
  private readonly attach = this.button("Attach", (actions) => actions.attach(this.row));
  private readonly resume = this.button("Resume", (actions) => actions.resume(this.row));
  private readonly remove = this.button("Delete", (actions) => actions.remove(this.row));
  private readonly buttons = make("div", "na-lab-buttons");

  constructor(
    row: JobRow,
    private readonly actions: JobActions,
  ) {
    this.row = row;
    this.element.append(make("div", "na-lab-heading", {}, this.choice, this.title, this.status));
    this.choice.title = "Choose the job for a comparison";
    this.choice.addEventListener("change", () => actions.choose(this.row, this.choice.checked));
    this.update(row);
  }

  update(row: JobRow): void {
    this.row = row;
    setAttribute(this.element, "data-job", row.id);
    setAttribute(this.element, "data-status", row.status);
    setText(this.title, row.title);
    setAttribute(this.choice, "aria-label", `Compare ${row.title}, job ${row.id}`);
    setText(this.status, statusText(row));
    setText(this.summary, row.summary);
    setText(this.note, row.note);
    setText(this.details, row.details);
    this.bar.update(row.done, percent(row.done));
    setAttribute(this.bar.element, "aria-label", `Progress of ${row.title}`);
    const [metric] = row.metrics;
    if (metric) {
      this.spark.update(`${metric.name} over the run`, metric.lines);
      setText(this.metricName, metric.name);
      setAttribute(this.metricName, "title", metric.name);
      setText(this.value, metric.value);
    }
    this.drawButtons(row);
    const heading = this.element.firstElementChild as Element;
    setChildren(this.element, [
      heading,
      ...(row.done >= 0 ? [this.bar.element] : []),
      ...(row.summary ? [this.summary] : []),
      ...(metric ? [this.metric] : []),
      ...(row.note ? [this.note] : []),
      this.details,
      this.buttons,
    ]);
  }

  private drawButtons(row: JobRow): void {
    setText(this.stop, row.stopping ? "Kill" : "Stop");
    for (const button of [this.open, this.stop, this.attach, this.resume, this.remove]) {
      setAttribute(button, "aria-label", `${button.textContent} ${row.title}, job ${row.id}`);
    }
    this.stop.title = row.stopping ? "Kill the ranks now" : "Interrupt the ranks, as Stop of the panel does";
    setChildren(this.buttons, [
      ...(row.code ? [this.open] : []),
      ...(row.live ? [this.stop] : []),
      ...(row.code ? [this.attach] : []),
      ...(row.resumable ? [this.resume] : []),
      ...(row.live ? [] : [this.remove]),
    ]);
  }

  private button(text: string, click: (actions: JobActions) => void): HTMLButtonElement {
    const button = make("button", "na-lab-button jp-mod-styled", { type: "button" }, text);
    button.addEventListener("click", () => click(this.actions));
    if (text === "Open") button.title = "Show the panel of the job in a tab";
    if (text === "Attach") button.title = "Insert a cell that shows the job, below the active cell";
    if (text === "Resume") button.title = "Insert a cell that continues the training, below the active cell";
    if (text === "Delete") button.title = "Delete the record of the job";
    return button;
  }
}
