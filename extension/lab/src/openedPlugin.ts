/** When a notebook is opened: has a busy kernel show its panels, and shows as HTML those that the kernel doesn't have. */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from "@jupyterlab/application";
import { INotebookTracker, type NotebookPanel } from "@jupyterlab/notebook";
import { replaceEndedPanels, requestRunningPanels } from "./openedPanels";

const plugin: JupyterFrontEndPlugin<void> = {
  id: "notebook-accel:opened",
  description: "Shows the panels of a notebook that is opened while its kernel is busy, or after its kernel has ended.",
  autoStart: true,
  requires: [INotebookTracker],
  activate: (_: JupyterFrontEnd, notebooks: INotebookTracker): void => {
    const opened = (panel: NotebookPanel) => {
      void requestRunningPanels(panel);
      void replaceEndedPanels(panel);
    };
    notebooks.forEach(opened);
    notebooks.widgetAdded.connect((_, panel) => opened(panel));
  },
};

export default plugin;
