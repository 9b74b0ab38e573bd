/** Shows a widget where the front end has room for it. */
import type { ILabShell, JupyterFrontEnd } from "@jupyterlab/application";
import { Widget } from "@lumino/widgets";
import { make, setText } from "../../src/dom";

/** Pixels of width below which a tab can't be read. */
const NARROWEST = 280;

/**
 * Shows a widget in a tab of the main area, or the widget with the same ID that is there already. Notebook has no such
 * tabs, and shows a dialog instead. A sidebar that leaves the tab no room is closed.
 * @returns Whether it was added, rather than another shown.
 */
export function show(app: JupyterFrontEnd, widget: Widget, type: string): boolean {
  const isKnown = [...app.shell.widgets("main")].some((each) => each.id === widget.id);
  if (isKnown) widget.dispose();
  else app.shell.add(widget, "main", { type });
  if (isKnown || widget.isAttached) {
    app.shell.activateById(widget.id);
    requestAnimationFrame(() => makeRoom(app.shell, widget.id));
  } else showDialog(widget);
  return !isKnown;
}

function makeRoom(shell: JupyterFrontEnd.IShell & Partial<Pick<ILabShell, "collapseRight">>, id: string): void {
  const tab = [...shell.widgets("main")].find((each) => each.id === id);
  if (tab && tab.node.clientWidth < NARROWEST) shell.collapseRight?.();
}

/** The browser's own dialog, since that of JupyterLab takes Enter and the arrows for itself. */
function showDialog(widget: Widget): void {
  const title = make("h2", "na-lab-dialog-title", { id: `${widget.id}-title` });
  const close = make("button", "na-lab-button jp-mod-styled", { type: "button" }, "Close");
  const head = make("div", "na-lab-dialog-head", {}, title, close);
  const dialog = make("dialog", "na-lab-dialog", { "aria-labelledby": title.id }, head);
  const draw = () => setText(title, widget.title.label);
  draw();
  widget.title.changed.connect(draw);
  close.addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => {
    widget.dispose();
    dialog.remove();
  });
  document.body.append(dialog);
  Widget.attach(widget, dialog);
  dialog.showModal();
}
