/** The panels of a notebook that is opened: the page lacks those of a busy kernel, and the kernel those that it has lost. */
import type { ISessionContext } from "@jupyterlab/apputils";
import type { ICodeCellModel } from "@jupyterlab/cells";
import type { NotebookPanel } from "@jupyterlab/notebook";
import type { Kernel } from "@jupyterlab/services";
import { controlChannelOf, type Kernel as Receiver } from "../../src/kernel";
import { turn } from "../../src/notebookOutput";
import { execute } from "./cellsMode";

const WIDGET = "application/vnd.jupyter.widget-view+json";
/** The metadata of an output with a panel, as `_MARK` in widget.py. */
const MARK = "notebook_accel";
/** Nothing is imported: without the module, the kernel has never had a panel. */
const QUESTION =
  "(lambda panel: panel.known_panels() if panel else [])" +
  "(__import__('sys').modules.get('notebook_accel.notebook.views.panel'))";
const ID = /[0-9a-f]{32}/g;
/** Within this time, in milliseconds, an idle kernel has answered, and the page has drawn the panels that it knows. */
const DRAWN_AFTER = 2000;
/** As `_EVERY` in reload.py. */
const EVERY_PANEL = "*";

/** An output that shows a panel, with HTML for where there is none. */
interface Saved {
  outputs: ICodeCellModel["outputs"];
  index: number;
  id: string;
}

/** Shows the HTML that was saved with a panel in place of one that the kernel doesn't have, when a notebook is opened. */
export async function replaceEndedPanels(panel: NotebookPanel): Promise<void> {
  await panel.context.ready;
  await panel.sessionContext.ready;
  if (savedPanels(panel).length === 0) return;
  const known = await knownPanels(panel.sessionContext).catch(() => undefined);
  if (known === undefined || panel.isDisposed) return;
  const ended = savedPanels(panel)
    .map(({ id }) => id)
    .filter((id) => !known.includes(id));
  if (ended.length) await turn(panel.context.model as object);
  for (const { outputs, index, id } of savedPanels(panel)) {
    if (!ended.includes(id)) continue;
    const { [WIDGET]: _, ...data } = outputs.get(index).data as Record<string, string>;
    outputs.set(index, { output_type: "display_data", metadata: {}, data });
  }
}

function savedPanels(panel: NotebookPanel): Saved[] {
  const found: Saved[] = [];
  for (const cell of panel.content.model?.cells ?? []) {
    const { outputs } = cell as Partial<ICodeCellModel>;
    for (let index = 0; index < (outputs?.length ?? 0); index += 1) {
      const output = outputs?.get(index);
      const id = (output?.data[WIDGET] as { model_id?: string } | undefined)?.model_id;
      if (outputs && id && output?.data["text/html"] && MARK in output.metadata) found.push({ outputs, index, id });
    }
  }
  return found;
}

/** The IDs of the panels that the notebook's kernel has, once it is idle; `undefined` if it doesn't answer. */
async function knownPanels(session: ISessionContext): Promise<string[] | undefined> {
  const kernel = session.session?.kernel;
  if (!kernel || (await kernel.info).language_info.name !== "python") return [];
  for (;;) {
    const { content } = await execute(kernel, "", { panels: QUESTION });
    if ((content.status as string) === "aborted") continue; // a cell before it has failed
    if (content.status !== "ok") return undefined;
    const answer = content.user_expressions.panels as { data?: Record<string, string> } | undefined;
    return answer?.data?.["text/plain"]?.match(ID) ?? (answer?.data && []);
  }
}

/**
 * Asks the kernel for its panels if it is busy and the notebook shows none: until its cell ends, it can't tell the page
 * of its widgets.
 */
export async function requestRunningPanels(panel: NotebookPanel): Promise<void> {
  await panel.context.ready;
  const kernel = await connected(panel.sessionContext);
  await new Promise((resolve) => setTimeout(resolve, DRAWN_AFTER));
  if (panel.isDisposed || kernel.isDisposed || kernel.status === "idle" || panel.node.querySelector(".na-panel"))
    return;
  const content = { panel: EVERY_PANEL, content: { cmd: "opened" } };
  controlChannelOf(kernel as Receiver)?.({
    target_name: "notebook-accel",
    notebook_accel: content,
  });
}

/** The notebook's kernel, once messages reach it. */
function connected(session: ISessionContext): Promise<Kernel.IKernelConnection> {
  return new Promise((resolve) => {
    const check = () => {
      const kernel = session.session?.kernel;
      if (kernel?.connectionStatus !== "connected") return;
      session.kernelChanged.disconnect(check);
      session.connectionStatusChanged.disconnect(check);
      resolve(kernel);
    };
    session.kernelChanged.connect(check);
    session.connectionStatusChanged.connect(check);
    check();
  });
}
