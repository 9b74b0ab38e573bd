/** A tab of the main area, or a dialog, that compares the metrics of several jobs, live while it is visible. */
import type { Poll } from "@lumino/polling";
import { Widget } from "@lumino/widgets";
import { render } from "lit-html";
import type { Scale } from "../../src/charts/lines";
import { logButton, smoothingSlider } from "../../src/charts/tools";
import { options } from "../../src/elements";
import { html } from "../../src/template";
import { ComparisonChart } from "./comparisonChart";
import { jobsIcon } from "./icons";
import type { Comparison, JobRow } from "./model";
import { polled } from "./poll";
import { compareJobs } from "./server";

const PAUSE = 2000;
/** While the server still reads. */
const SHORT_PAUSE = 200;

export class ComparisonTab extends Widget {
  private readonly chart: ComparisonChart;
  private readonly poll: Poll<void>;
  /** The metric that is asked for, and the one that is selected. */
  private metric: string;
  private selected = "";
  private names: string[] = [];
  private scale: Scale = { log: false, smoothing: 0 };
  private message = "";

  /** @param edit - Asks for another name, notes, and a pin of a job; done once they are saved. */
  constructor(
    private readonly jobs: JobRow[],
    edit: (job: string) => Promise<void>,
  ) {
    super();
    this.chart = new ComparisonChart(
      (job) => void edit(job).then(() => this.poll.refresh()),
      (metric) => this.choose(metric),
    );
    this.id = `notebook-accel-comparison-${jobs.map((job) => job.id).join("-")}`;
    this.addClass("na-lab-comparison");
    this.addClass("na-panel"); // its colors and the looks of charts
    this.title.label = `Compare ${jobs.length} jobs`;
    this.title.caption = jobs.map((job) => job.title).join(", ");
    this.title.icon = jobsIcon;
    this.title.closable = true;
    this.metric = jobs.flatMap((job) => job.metrics)[0]?.name ?? "";
    this.draw("");
    this.poll = polled(
      "comparison",
      PAUSE,
      () => this.ask(),
      (problem) => this.draw(problem),
      () => this.isVisible,
    );
  }

  override dispose(): void {
    if (this.isDisposed) return;
    this.poll.dispose();
    this.chart.dispose();
    super.dispose();
  }

  private async ask(): Promise<void> {
    const asked = this.metric;
    const ids = this.jobs.map((job) => job.id);
    const found = await compareJobs(ids, asked);
    if (this.isDisposed || asked !== this.metric) return;
    this.take(found);
    this.poll.frequency = { ...this.poll.frequency, interval: found.complete ? PAUSE : SHORT_PAUSE };
  }

  private take(found: Comparison): void {
    this.names = found.names.includes(found.metric) ? found.names : [found.metric, ...found.names];
    this.selected = found.metric;
    this.draw(found.complete ? "" : "Reading the reports…");
    this.chart.update(found);
  }

  /** Draws another metric in detail. */
  private choose(metric: string): void {
    this.metric = this.selected = metric;
    this.draw(this.message);
    void this.poll.refresh();
  }

  private draw(message: string): void {
    this.message = message;
    const scale = (change: Partial<Scale>) => {
      this.scale = { ...this.scale, ...change };
      this.chart.set(this.scale);
      this.draw(this.message);
    };
    const onChange = (event: Event) => this.choose((event.target as HTMLSelectElement).value);
    const names = this.names.map((name): [string, string] => [name, name]);
    // The name is not the node's: JupyterLab makes that a tab's panel.
    render(
      html`<section aria-label="Comparison of jobs">
        <div class="na-lab-comparison-head">
          <label>Metric <select class="na-select" aria-label="Metric" @change=${onChange}>${options(
            names,
            this.selected,
          )}</select></label>
          ${logButton(this.scale.log, scale)}${smoothingSlider(this.scale.smoothing, scale)}
        </div>
        <p class="na-lab-message" role="status">${message}</p>
        ${this.chart.element}
      </section>`,
      this.node,
    );
  }
}
