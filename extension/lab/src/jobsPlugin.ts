/** The sidebar with the user's jobs, and its commands. */
import { ILayoutRestorer, type JupyterFrontEnd, type JupyterFrontEndPlugin } from "@jupyterlab/application";
import {
  Dialog,
  ICommandPalette,
  Notification,
  showDialog,
  showErrorMessage,
  WidgetTracker,
} from "@jupyterlab/apputils";
import { INotebookTracker, NotebookActions } from "@jupyterlab/notebook";
import { Token } from "@lumino/coreutils";
import { ATTACH, CATEGORY, OPEN, RESUME, SHOW_JOBS, STOP } from "./commands";
import { insertCell, resumeCode } from "./insertCell";
import { endText, Jobs } from "./jobs";
import type { JobTab } from "./jobTab";
import { askForMarks, type Marks } from "./marks";
import type { JobRow } from "./model";
import { runAgain } from "./runAgain";
import { deleteJob, markJob, stopJob } from "./server";
import { show } from "./show";
import { Sidebar } from "./sidebar";

export const IJobs = new Token<Jobs>("notebook-accel:IJobs", "The jobs of notebook-accel.");
const RANK = 900;
/** In seconds. */
const SHORTEST_TOLD = 10;
const JOB_ID = /^[0-9a-f]+$/;

const plugin: JupyterFrontEndPlugin<Jobs> = {
  id: "notebook-accel:jobs",
  description: "Shows the jobs of notebook-accel in the right sidebar.",
  autoStart: true,
  provides: IJobs,
  requires: [INotebookTracker],
  optional: [ILayoutRestorer, ICommandPalette],
  activate: (
    app: JupyterFrontEnd,
    notebooks: INotebookTracker,
    restorer: ILayoutRestorer | null,
    palette: ICommandPalette | null,
  ): Jobs => {
    const jobs = new Jobs();
    const stop = (row: JobRow) => void request(jobs, "The job can't be stopped", () => stopJob(row.id));
    const attach = (row: JobRow) => insertCell(notebooks, row.code);
    const resume = (row: JobRow) => insertCell(notebooks, resumeCode(row.id));
    const mark = (id: string, marks: Marks) => request(jobs, "The job can't be changed", () => markJob(id, marks));
    const edit = async (id: string) => {
      await jobs.refresh();
      const row = jobs.rows.find((each) => each.id === id);
      const marks = row ? await askForMarks(row) : {};
      if (Object.keys(marks).length) await mark(id, marks);
    };
    const compare = async (rows: JobRow[]) => {
      const { ComparisonTab } = await import("./comparison");
      show(app, new ComparisonTab(rows, edit), "Comparison");
    };
    const open = (row: JobRow) => void app.commands.execute(OPEN, { job: row.id });
    const sidebar = new Sidebar(jobs, {
      ...{ open, stop, attach, resume },
      runAgain: (row) => void runAgain(app, notebooks, row),
      edit: (row) => void edit(row.id),
      pin: (row) => void mark(row.id, { pinned: !row.pinned }),
      compare: (rows) => void compare(rows),
      remove: (row) => void remove(jobs, row),
    });
    app.shell.add(sidebar, "right", { rank: RANK, type: "Jobs" });
    restorer?.add(sidebar, sidebar.id);

    const { commands } = app;
    commands.addCommand(SHOW_JOBS, {
      label: "Show Jobs",
      caption: "Show the training jobs in the right sidebar",
      execute: () => app.shell.activateById(sidebar.id),
    });
    commands.addCommand(ATTACH, {
      label: "Attach to the Last Job",
      caption: "Insert a cell that shows the running job, or the last one if none is running",
      execute: async ({ job }) => {
        await jobs.refresh();
        const row = job
          ? jobs.rows.find((each) => each.id === job)
          : (jobs.running ?? jobs.rows.find((each) => each.code));
        const missing = job ? `This Jupyter server doesn't have job ${job}.` : "No job has been launched yet.";
        if (row?.code) attach(row);
        else Notification.warning(jobs.problem || missing, { autoClose: 5000 });
      },
    });
    const tabs = new WidgetTracker<JobTab>({ namespace: "notebook-accel-jobs" });
    commands.addCommand(OPEN, {
      label: "Open the Running Job",
      caption: "Open the panel of the running job in a tab, or of the last one if none is running",
      execute: async ({ job }) => {
        if (!job) await jobs.refresh();
        const id = job ? String(job) : (jobs.running ?? jobs.rows[0])?.id;
        if (!id || !JOB_ID.test(id)) {
          Notification.warning(jobs.problem || "No job has been launched yet.", { autoClose: 5000 });
          return;
        }
        const { JobTab } = await import("./jobTab");
        const tab = new JobTab(id);
        if (show(app, tab, "Job")) await tabs.add(tab);
      },
    });
    void restorer?.restore(tabs, { command: OPEN, args: (tab) => ({ job: tab.job }), name: (tab) => tab.job });
    commands.addCommand(RESUME, {
      label: "Resume Training",
      caption: "Insert a cell that continues the training, and run it",
      isVisible: () => false, // it needs to know the job
      execute: async ({ job }) => {
        const panel = notebooks.currentWidget;
        if (!panel || !JOB_ID.test(String(job))) return; // the button may be in an output that someone else has made
        insertCell(notebooks, resumeCode(String(job)));
        await NotebookActions.run(panel.content, panel.sessionContext);
      },
    });
    commands.addCommand(STOP, {
      label: "Stop the Running Job",
      caption: "Stop the ranks of the running job that was launched last",
      execute: async () => {
        await jobs.refresh();
        if (jobs.running) stop(jobs.running);
        else Notification.info(jobs.problem || "No job is running.", { autoClose: 5000 });
      },
    });
    for (const command of [SHOW_JOBS, OPEN, ATTACH, STOP]) palette?.addItem({ command, category: CATEGORY });
    jobs.ended.connect((_, row) => notify(row, () => open(row)));
    return jobs;
  },
};

export default plugin;

/** Sends a request, and then asks for the jobs again. */
function request(jobs: Jobs, failure: string, send: () => Promise<void>): Promise<unknown> {
  return send()
    .then(() => jobs.refresh())
    .catch((error: Error) => showErrorMessage(failure, error));
}

async function remove(jobs: Jobs, row: JobRow): Promise<void> {
  const answer = await showDialog({
    title: `Delete ${row.title}?`,
    body: `This deletes job ${row.id} and everything recorded for it from the disk: its output, metrics, and results.`,
    buttons: [Dialog.cancelButton(), Dialog.warnButton({ label: "Delete" })],
  });
  if (answer.button.accept) await request(jobs, "The job can't be deleted", () => deleteJob(row.id));
}

/** Tells that a job has ended, unless the user has ended it, or has hardly had the time to look away. */
function notify(row: JobRow, open: () => void): void {
  if (row.stopping > 0 || row.seconds < SHORTEST_TOLD) return;
  const tell =
    row.status === "done" ? Notification.success : row.status === "failed" ? Notification.error : Notification.info;
  tell(endText(row), {
    autoClose: row.status === "failed" ? 15_000 : 5000,
    actions: [{ label: "Open job", callback: open }],
  });
}
