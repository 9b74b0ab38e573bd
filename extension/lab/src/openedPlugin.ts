/** Has a kernel that is busy show its panels on a page that was opened meanwhile. */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from "@jupyterlab/application";
import { INotebookTracker } from "@jupyterlab/notebook";
import { requestPanels } from "./missingPanels";

const plugin: JupyterFrontEndPlugin<void> = {
  id: "notebook-accel:opened",
  description: "Shows the panels of a kernel that is busy on a page that was opened meanwhile.",
  autoStart: true,
  requires: [INotebookTracker],
  activate: (_: JupyterFrontEnd, notebooks: INotebookTracker): void => {
    notebooks.forEach((panel) => void requestPanels(panel));
    notebooks.widgetAdded.connect((_, panel) => void requestPanels(panel));
  },
};

export default plugin;
