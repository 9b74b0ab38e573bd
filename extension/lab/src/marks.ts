/** What the user says about a job: the dialog for its name, notes, and pin. */
import { Dialog, showDialog } from "@jupyterlab/apputils";
import { Widget } from "@lumino/widgets";
import { make } from "../../src/dom";
import type { JobRow } from "./model";

/** What changes. */
export type Marks = Partial<Pick<JobRow, "title" | "notes" | "pinned">>;

/** Asks the user; returns what they have changed. */
export async function askForMarks(row: JobRow): Promise<Marks> {
  const form = new Form(row);
  const answer = await showDialog({
    title: `Edit ${row.title}`,
    body: form,
    buttons: [Dialog.cancelButton(), Dialog.okButton({ label: "Save" })],
    focusNodeSelector: "input",
  });
  return answer.button.accept ? (answer.value ?? {}) : {};
}

class Form extends Widget {
  private readonly name = make("input", "jp-mod-styled", { type: "text", maxlength: "120", "aria-label": "Name" });
  private readonly notes = make("textarea", "jp-mod-styled", { rows: "4", maxlength: "4000", "aria-label": "Notes" });
  private readonly pin = make("input", "", { type: "checkbox" });

  constructor(private readonly row: JobRow) {
    super();
    this.addClass("na-lab-form");
    this.name.value = row.title;
    this.notes.value = row.notes;
    this.pin.checked = row.pinned;
    this.node.append(
      make("label", "", {}, "Name", this.name),
      make("label", "", {}, "Notes", this.notes),
      make("label", "", {}, this.pin, " Pin to the top of the list"),
    );
  }

  getValue(): Marks {
    const found: Required<Marks> = {
      title: this.name.value.trim(),
      notes: this.notes.value.trim(),
      pinned: this.pin.checked,
    };
    const changed = Object.entries(found).filter(([name, value]) => value !== this.row[name as keyof Marks]);
    return Object.fromEntries(changed) as Marks;
  }
}
