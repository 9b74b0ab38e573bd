/** The panels that a page lacks because it was opened while the kernel was busy, such as in a second browser. */
import type { ISessionContext } from "@jupyterlab/apputils";
import type { NotebookPanel } from "@jupyterlab/notebook";
import type { Kernel } from "@jupyterlab/services";
import { controlChannelOf, type Kernel as Receiver } from "../../src/host";

/** Within this time, in milliseconds, an idle kernel has answered, and the page has drawn the panels that it knows. */
const PAUSE = 2000;
/** As `_EVERY` in reload.py. */
const EVERY_PANEL = "*";

/**
 * Asks the kernel for its panels if it is busy and the notebook shows none: until its cell ends, it can't tell the page
 * of its widgets.
 */
export async function requestPanels(panel: NotebookPanel): Promise<void> {
  await panel.context.ready;
  const kernel = await connected(panel.sessionContext);
  await new Promise((resolve) => setTimeout(resolve, PAUSE));
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
