import { make, percent, setAttribute } from "./dom";
import type { Done } from "./model";

/** A progress bar; one that does not know its end is empty, and says so to a screen reader by having no value. */
export class ProgressBar {
  readonly element: HTMLElement;
  #fill: HTMLElement;
  #done: Done | undefined;

  constructor(className: string, label: string) {
    this.#fill = make("div", "na-fill");
    const role = { role: "progressbar", "aria-label": label, "aria-valuemin": "0", "aria-valuemax": "100" };
    this.element = make("div", className, role, this.#fill);
  }

  update(done: Done, words: string): void {
    setAttribute(this.element, "aria-valuetext", words || null);
    if (done === this.#done) return;
    this.#done = done;
    setAttribute(this.element, "aria-valuenow", done < 0 ? null : percent(done).slice(0, -1));
    this.#fill.style.transform = `scaleX(${Math.max(0, done) / 1000})`;
  }
}
