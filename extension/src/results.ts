import { make, setText } from "./dom";

const NONE = "A flame graph or a profile appears here, once the button above has made it.";
/** Its colors are those of a light page, as in a notebook that was exported. */
const FRAME = "<!DOCTYPE html><meta charset='utf-8'><style>body{margin:8px;font:13px sans-serif}</style>";

/** The flame graphs and profiles of a job, the newest first. */
export class Results {
  readonly element = make("div", "na-results", {}, NONE);
  #count = 0;

  get count(): number {
    return this.#count;
  }

  /** Shows a page, in a frame that has access to nothing outside it. */
  add(page: string): void {
    if (this.#count === 0) setText(this.element, "");
    this.#count += 1;
    const frame = make("iframe", "na-result", { sandbox: "allow-scripts", title: "Flame graph or profile" });
    frame.srcdoc = FRAME + page;
    this.element.prepend(frame);
  }
}
