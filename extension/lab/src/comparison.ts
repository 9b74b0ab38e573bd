/** A tab of the main area, or a dialog, that compares a metric of several jobs, live while it is visible. */
import { Poll } from "@lumino/polling";
import { Widget } from "@lumino/widgets";
import { make, setChildren, setText } from "../../src/dom";
import { ComparisonChart } from "./comparisonChart";
import { jobsIcon } from "./icons";
import type { Comparison, JobRow } from "./model";
import { compareJobs } from "./server";

const PAUSE = 2000;
const LONGEST_PAUSE = 30_000;
/** While the server still reads. */
const SHORT_PAUSE = 200;

export class ComparisonTab extends Widget {
  private readonly chart = new ComparisonChart();
  private readonly select = make("select", "na-select", { "aria-label": "Metric" });
  private readonly message = make("p", "na-lab-message", { role: "status" });
  private readonly poll: Poll<void>;
  private metric: string;
  private names: string[] = [];

  constructor(private readonly jobs: JobRow[]) {
    super();
    this.id = `notebook-accel-comparison-${jobs.map((job) => job.id).join("-")}`;
    this.addClass("na-lab-comparison");
    this.addClass("na-panel"); // its colors and the looks of charts
    this.title.label = `Compare ${jobs.length} jobs`;
    this.title.caption = jobs.map((job) => job.title).join(", ");
    this.title.icon = jobsIcon;
    this.title.closable = true;
    this.metric = jobs.flatMap((job) => job.metrics)[0]?.name ?? "";
    this.select.addEventListener("change", () => {
      this.metric = this.select.value;
      void this.poll.refresh();
    });
    const head = make("div", "na-lab-comparison-head", {}, make("label", "", {}, "Metric ", this.select));
    const named = { "aria-label": "Comparison of jobs" }; // not the node: JupyterLab makes it a tab's panel
    this.node.append(make("section", "", named, head, this.message, this.chart.element));
    this.poll = new Poll<void>({
      name: "notebook-accel:comparison",
      auto: false,
      factory: () => this.ask(),
      frequency: { interval: PAUSE, backoff: true, max: LONGEST_PAUSE },
      standby: () => document.hidden || !this.isVisible,
    });
    void this.poll.start();
  }

  override dispose(): void {
    if (this.isDisposed) return;
    this.poll.dispose();
    this.chart.dispose();
    super.dispose();
  }

  private async ask(): Promise<void> {
    const asked = this.metric;
    try {
      const ids = this.jobs.map((job) => job.id);
      const found = await compareJobs(ids, asked);
      if (this.isDisposed || asked !== this.metric) return;
      this.draw(found);
      this.poll.frequency = { ...this.poll.frequency, interval: found.complete ? PAUSE : SHORT_PAUSE };
    } catch (error) {
      setText(this.message, error instanceof Error ? error.message : String(error));
      throw error; // so that the next request comes later
    }
  }

  private draw(found: Comparison): void {
    setText(this.message, found.complete ? "" : "Reading the reports…");
    const names = found.names.includes(found.metric) ? found.names : [found.metric, ...found.names];
    if (names.join("\n") !== this.names.join("\n")) {
      this.names = names;
      setChildren(
        this.select,
        names.map((name) => make("option", "", { value: name }, name)),
      );
    }
    this.select.value = found.metric;
    this.chart.update(found);
  }
}
