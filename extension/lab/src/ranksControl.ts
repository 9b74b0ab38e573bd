/** The control in the notebook's toolbar: shows where cells run, and changes it. */
import { Dialog, Notification, showDialog, showErrorMessage } from "@jupyterlab/apputils";
import { Widget } from "@lumino/widgets";
import { make, setText } from "../../src/dom";
import type { CellsMode } from "./cellsMode";

const MOST = 4096;

export class RanksControl extends Widget {
  private readonly button = make("button", "na-lab-ranks", { type: "button", "aria-haspopup": "dialog" });

  constructor(private readonly mode: CellsMode) {
    super();
    this.addClass("na-lab-ranks-item");
    this.node.append(this.button);
    this.button.title = "Where cells run: in this kernel, or each on every rank";
    this.button.addEventListener("click", () => void this.choose());
    mode.changed.connect(this.draw, this);
    this.draw();
  }

  override dispose(): void {
    this.mode.dispose();
    super.dispose();
  }

  private draw(): void {
    this.setHidden(this.mode.ranks === null);
    this.button.disabled = this.mode.isChanging;
    setText(this.button, this.mode.isChanging ? "Starting…" : label(this.mode.ranks ?? 0));
    this.button.classList.toggle("na-lab-on", this.mode.ranks !== 0);
  }

  private async choose(): Promise<void> {
    const form = new Form(this.mode.ranks ?? 0);
    const answer = await showDialog({
      title: "Run cells on…",
      body: form,
      buttons: [Dialog.cancelButton(), Dialog.okButton({ label: "Apply" })],
    });
    if (!answer.button.accept) return;
    const { ranks, keep } = answer.value ?? { ranks: Number.NaN, keep: false };
    if (Number.isNaN(ranks)) {
      await showErrorMessage("Where cells run", `The number of ranks must be a whole number from 1 to ${MOST}.`);
      return;
    }
    try {
      const { where, notices } = await this.mode.change(ranks, keep);
      const [sentence] = where.split(/[.;] /);
      if (sentence) Notification.info(sentence, { autoClose: 5000 });
      if (notices) Notification.info(notices, { autoClose: false });
    } catch (error) {
      await showErrorMessage("Cells run where they did before", error as Error);
    }
  }
}

function label(ranks: number): string {
  if (!ranks) return "This kernel";
  return ranks < 0 ? "Every cell on ranks" : `Every cell on ${ranks} rank${ranks === 1 ? "" : "s"}`;
}

interface Choice {
  /** 0 is the kernel; NaN is no valid number. */
  ranks: number;
  /** Whether ranks of another number get the variables of rank 0. */
  keep: boolean;
}

/** The choice in the dialog. */
class Form extends Widget {
  private readonly here = radio("kernel");
  private readonly everywhere = radio("ranks");
  private readonly keep = make("input", "", { type: "checkbox" });
  private readonly number = make("input", "jp-mod-styled", { type: "number", min: "1", max: String(MOST), step: "1" });

  constructor(ranks: number) {
    super();
    this.addClass("na-lab-form");
    (ranks ? this.everywhere : this.here).checked = true;
    this.number.value = String(ranks > 0 ? ranks : 2);
    this.keep.checked = true;
    this.number.setAttribute("aria-label", "Number of ranks");
    this.number.addEventListener("input", () => {
      this.everywhere.checked = true;
    });
    this.node.append(
      make("label", "", {}, this.here, " This kernel"),
      make("label", "", {}, this.everywhere, " Every cell on ", this.number, " ranks"),
      make("p", "", {}, "Changing the number restarts the ranks. The kernel keeps its variables."),
    );
    if (ranks > 0) this.node.append(make("label", "", {}, this.keep, " Copy the variables of rank 0 to the new ranks"));
  }

  getValue(): Choice {
    const number = this.here.checked ? 0 : this.number.valueAsNumber;
    const isValid = this.here.checked || (Number.isInteger(number) && number >= 1 && number <= MOST);
    return { ranks: isValid ? number : Number.NaN, keep: this.keep.checked };
  }
}

function radio(value: string): HTMLInputElement {
  return make("input", "", { type: "radio", name: "na-lab-where", value });
}
