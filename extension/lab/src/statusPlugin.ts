/** The running job in the status bar. */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from "@jupyterlab/application";
import { IStatusBar } from "@jupyterlab/statusbar";
import { Widget } from "@lumino/widgets";
import { make, setText } from "../../src/dom";
import { OPEN } from "./commands";
import type { Jobs } from "./jobs";
import { IJobs } from "./jobsPlugin";

const WATCHER = { pause: 1000, brief: true };

const plugin: JupyterFrontEndPlugin<void> = {
  id: "notebook-accel:status",
  description: "Shows the running job of notebook-accel in the status bar.",
  autoStart: true,
  requires: [IJobs],
  optional: [IStatusBar],
  activate: (app: JupyterFrontEnd, jobs: Jobs, bar: IStatusBar | null): void => {
    if (!bar) return; // as in Notebook
    const item = new StatusItem(jobs, () => void app.commands.execute(OPEN, { job: jobs.running?.id ?? "" }));
    bar.registerStatusItem(plugin.id, {
      item,
      align: "left",
      rank: 10,
      isActive: () => jobs.running !== undefined,
      activeStateChanged: jobs.changed,
    });
    void app.restored.then(() => jobs.watch(plugin.id, WATCHER));
  },
};

export default plugin;

class StatusItem extends Widget {
  private readonly button = make("button", "na-lab-running", { type: "button" });

  constructor(
    private readonly jobs: Jobs,
    click: () => void,
  ) {
    super();
    this.node.append(this.button);
    this.button.addEventListener("click", click);
    jobs.changed.connect(() => this.draw());
  }

  private draw(): void {
    const live = this.jobs.rows.filter((row) => row.live);
    const [last] = live;
    setText(
      this.button,
      last ? `${last.summary || `job ${last.id}`}${live.length > 1 ? ` (+${live.length - 1})` : ""}` : "",
    );
    this.button.title = live.map((row) => `${row.title}: ${row.summary}`).join("\n");
  }
}
