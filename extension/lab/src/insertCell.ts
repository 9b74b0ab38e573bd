/** Inserts a cell into the notebook that the user works in. */
import { Notification } from "@jupyterlab/apputils";
import { type INotebookTracker, NotebookActions } from "@jupyterlab/notebook";

/** Inserts a code cell below the active one, and makes it active. It isn't run: it is the user's. */
export function insertCell(notebooks: INotebookTracker, code: string): void {
  const panel = notebooks.currentWidget;
  if (!panel) {
    Notification.warning("Open a notebook first: the cell is inserted there.", { autoClose: 5000 });
    return;
  }
  const language = panel.content.model?.defaultKernelLanguage;
  if (!isPython(language)) {
    const message = `The notebook's kernel runs ${language}. Open one with a Python kernel: the cell is inserted there.`;
    Notification.warning(message, { autoClose: 5000 });
    return;
  }
  NotebookActions.insertBelow(panel.content);
  NotebookActions.changeCellType(panel.content, "code");
  panel.content.activeCell?.model.sharedModel.setSource(code);
  panel.activate();
}

/** Whether a notebook's kernel runs Python, by the language that the notebook records; a new one records none. */
export function isPython(language: string | undefined): boolean {
  return !language || language === "python";
}

/** The code of a cell that resumes a job. */
export function resumeCode(job: string): string {
  return `import notebook_accel\n\n%accelerate resume ${job}`;
}
