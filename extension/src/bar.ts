import { make, percent, setAttribute } from "./dom";
import type { Done } from "./model";

/** A progress bar. If its total is unknown, it is empty and has no `aria-valuenow`. */
export class ProgressBar {
  readonly element: HTMLElement;
  #fill: HTMLElement;
  #done: Done | undefined;

  constructor(className: string, label: string) {
    this.#fill = make("div", "na-fill");
    const role = { role: "progressbar", "aria-label": label, "aria-valuemin": "0", "aria-valuemax": "100" };
    this.element = make("div", className, role, this.#fill);
  }

  update(done: Done, label: string): void {
    setAttribute(this.element, "aria-valuetext", label || null);
    if (done === this.#done) return;
    this.#done = done;
    setAttribute(this.element, "aria-valuenow", done < 0 ? null : percent(done).slice(0, -1));
    this.#fill.style.transform = `scaleX(${Math.max(0, done) / 1000})`;
  }
}
