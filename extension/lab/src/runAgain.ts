/** Runs the cell again that has launched a job. */
import type { JupyterFrontEnd } from "@jupyterlab/application";
import { Notification } from "@jupyterlab/apputils";
import { type INotebookTracker, NotebookActions, type NotebookPanel } from "@jupyterlab/notebook";
import type { JobRow } from "./model";

/** Runs the cell as it is now, in its notebook, which is opened if it isn't. */
export async function runAgain(app: JupyterFrontEnd, notebooks: INotebookTracker, row: JobRow): Promise<void> {
  const isOpen = notebooks.find((each) => each.context.localPath === row.notebook);
  const panel =
    isOpen ?? ((await app.commands.execute("docmanager:open", { path: row.notebook })) as NotebookPanel | null);
  if (!panel) return; // Notebook opens it in a tab of the browser
  await Promise.all([panel.context.ready, panel.sessionContext.ready, panel.revealed]);
  app.shell.activateById(panel.id);
  const index = panel.content.widgets.findIndex((each) => each.model.id === row.cell);
  if (index < 0) {
    Notification.warning(`${row.notebook} no longer has the cell that launched this job.`, { autoClose: 5000 });
    return;
  }
  panel.content.activeCellIndex = index;
  panel.content.deselectAll();
  await panel.content.scrollToItem(index);
  await NotebookActions.run(panel.content, panel.sessionContext);
}
