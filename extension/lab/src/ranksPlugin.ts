/** Where cells run: the control in the notebook's toolbar, and the button in the cell's. */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from "@jupyterlab/application";
import { ICommandPalette, IToolbarWidgetRegistry, Notification } from "@jupyterlab/apputils";
import { INotebookTracker, NotebookActions, type NotebookPanel } from "@jupyterlab/notebook";
import { runsOnRanks, toggled } from "./cellSource";
import { CellsMode } from "./cellsMode";
import { CATEGORY, TOGGLE_ACCELERATE } from "./commands";
import { ranksIcon } from "./icons";
import { isPython } from "./insertCell";
import { RanksControl } from "./ranksControl";

const plugin: JupyterFrontEndPlugin<void> = {
  id: "notebook-accel:ranks",
  description: "Shows where the cells of a notebook run, and changes it.",
  autoStart: true,
  requires: [INotebookTracker],
  optional: [IToolbarWidgetRegistry, ICommandPalette],
  activate: (
    app: JupyterFrontEnd,
    notebooks: INotebookTracker,
    toolbars: IToolbarWidgetRegistry | null,
    palette: ICommandPalette | null,
  ): void => {
    toolbars?.addFactory<NotebookPanel>("Notebook", "notebook-accel-ranks", control);
    const activeCode = () => {
      const model = notebooks.activeCell?.model;
      if (!isPython(notebooks.currentWidget?.content.model?.defaultKernelLanguage)) return undefined;
      return model?.type === "code" ? model.sharedModel : undefined;
    };
    app.commands.addCommand(TOGGLE_ACCELERATE, {
      label: "Run Cell on Every Rank",
      caption: "Add %%accelerate as the first line of the cell, or remove it",
      icon: ranksIcon,
      isEnabled: () => activeCode() !== undefined,
      isVisible: () => activeCode() !== undefined,
      isToggled: () => runsOnRanks(activeCode()?.getSource() ?? ""),
      execute: () => {
        const code = activeCode();
        try {
          if (code) code.setSource(toggled(code.getSource()));
        } catch (error) {
          Notification.warning((error as Error).message, { autoClose: 5000 });
        }
        app.commands.notifyCommandChanged(TOGGLE_ACCELERATE);
      },
    });
    const notify = () => app.commands.notifyCommandChanged(TOGGLE_ACCELERATE);
    notebooks.activeCellChanged.connect(notify);
    notebooks.widgetAdded.connect((_, panel) => panel.context.model.metadataChanged.connect(notify)); // has the language
    palette?.addItem({ command: TOGGLE_ACCELERATE, category: CATEGORY });
  },
};

export default plugin;

/** The control of one notebook, which asks again after each cell, since a cell can have changed the mode. */
function control(panel: NotebookPanel): RanksControl {
  const mode = new CellsMode(panel.sessionContext);
  const made = new RanksControl(mode);
  const ask = (_: unknown, { notebook }: { notebook: unknown }) => {
    if (notebook === panel.content) void mode.ask();
  };
  NotebookActions.executed.connect(ask);
  made.disposed.connect(() => NotebookActions.executed.disconnect(ask));
  return made;
}
