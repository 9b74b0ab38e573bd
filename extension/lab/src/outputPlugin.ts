/** Outputs that name a job: announces to the server that this page draws them, draws them, and adds those that weren't saved. */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from "@jupyterlab/application";
import type { ICodeCellModel } from "@jupyterlab/cells";
import { INotebookTracker, type NotebookPanel } from "@jupyterlab/notebook";
import { IRenderMimeRegistry } from "@jupyterlab/rendermime";
import { JobOutput, MIME, type Spot } from "./jobOutput";
import { announcePage, listOutputs } from "./server";

/** Before widgets and HTML. */
const RANK = -10;
const WIDGET = "application/vnd.jupyter.widget-view+json";
/** The metadata of an output with a widget, and with HTML for where there is none, as `_MARK` in widget.py. */
const MARK = "notebook_accel";

const plugin: JupyterFrontEndPlugin<void> = {
  id: "notebook-accel:output",
  description: "Draws the jobs that a notebook has launched below their cells.",
  autoStart: true,
  requires: [IRenderMimeRegistry, INotebookTracker],
  activate: (_: JupyterFrontEnd, rendermime: IRenderMimeRegistry, notebooks: INotebookTracker): void => {
    const spot = (node: HTMLElement) => spotOf(notebooks, node);
    rendermime.addFactory(
      { safe: true, mimeTypes: [MIME], createRenderer: () => new JobOutput(rendermime, spot) },
      RANK,
    );
    const opened = (panel: NotebookPanel) => {
      announceWhenConnected(panel);
      void dropWidgets(panel);
      void addMissing(panel).catch(() => undefined); // without the server's extension, there are none
    };
    notebooks.forEach(opened);
    notebooks.widgetAdded.connect((_, panel) => opened(panel));
  },
};

export default plugin;

/** Tells the server each time that the notebook connects to a kernel, which then has the page draw its jobs. */
function announceWhenConnected({ sessionContext }: NotebookPanel): void {
  let announced = "";
  const announce = () => {
    const kernel = sessionContext.session?.kernel;
    if (kernel?.connectionStatus !== "connected" || kernel.clientId === announced) return;
    announced = kernel.clientId;
    announcePage(announced).catch(() => undefined); // the kernel then shows its jobs in another way
  };
  sessionContext.kernelChanged.connect(announce);
  sessionContext.connectionStatusChanged.connect(announce);
  announce();
}

/** Shows the HTML that was saved with a widget, which no kernel that is connected later has. */
async function dropWidgets(panel: NotebookPanel): Promise<void> {
  await panel.context.ready;
  for (const { outputs } of (panel.content.model?.cells ?? []) as Iterable<Partial<ICodeCellModel>>) {
    for (let index = 0; index < (outputs?.length ?? 0); index += 1) {
      const output = outputs?.get(index);
      if (!output?.data[WIDGET] || !output.data["text/html"] || !(MARK in output.metadata)) continue;
      const { [WIDGET]: _, ...data } = output.data as Record<string, string>;
      outputs?.set(index, { output_type: "display_data", metadata: {}, data });
    }
  }
}

/** Adds the outputs of jobs that were drawn after the notebook was saved last, and then lost with their page. */
async function addMissing(panel: NotebookPanel): Promise<void> {
  await panel.context.ready;
  const saved = Date.parse(panel.context.contentsModel?.last_modified ?? "") / 1000;
  for (const { job, cell, at } of await listOutputs(panel.context.localPath)) {
    if (panel.isDisposed || at < saved) continue;
    for (const model of panel.content.model?.cells ?? []) {
      const { outputs } = model as Partial<ICodeCellModel>;
      if (model.id !== cell || !outputs || shows(outputs, job)) continue;
      outputs.add({ output_type: "display_data", data: { [MIME]: { job }, "text/plain": `Job ${job}` }, metadata: {} });
    }
  }
}

function shows(outputs: ICodeCellModel["outputs"], job: string): boolean {
  return outputs.toJSON().some((each) => {
    const data = each.data as Record<string, { job?: string }> | undefined;
    return data?.[MIME]?.job === job;
  });
}

function spotOf(notebooks: INotebookTracker, node: HTMLElement): Spot | undefined {
  const panel = notebooks.find((each) => each.content.node.contains(node));
  const cell = panel?.content.widgets.find((each) => each.node.contains(node));
  if (!panel || !cell) return undefined;
  return { notebook: panel.context.localPath, cell: cell.model.id };
}
