import { make, setAttribute, setText } from "./dom";

/** Headings that tell on which machine the ranks below live, where there are several. */
export class Machines {
  #role: string | undefined;
  #headings: HTMLElement[] = [];

  /** `role` is what the headings are to a screen reader, in a list for instance its items. */
  constructor(role?: string) {
    this.#role = role;
  }

  /** The elements with a heading before each whose machine is not that of the one before; empty names have none. */
  divide(elements: [HTMLElement, string][]): HTMLElement[] {
    const divided: HTMLElement[] = [];
    let count = 0;
    let before = "";
    for (const [element, host] of elements) {
      if (host !== before) divided.push(this.#heading(count++, host));
      divided.push(element);
      before = host;
    }
    return divided;
  }

  #heading(index: number, host: string): HTMLElement {
    this.#headings[index] ??= make("div", "na-machine");
    const heading = this.#headings[index] as HTMLElement;
    if (this.#role) setAttribute(heading, "role", this.#role);
    setText(heading, host);
    return heading;
  }
}
