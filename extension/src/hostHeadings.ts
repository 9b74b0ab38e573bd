import { make, setAttribute, setText } from "./dom";

/** Headings that name the node of the ranks below them, if there are several nodes. */
export class HostHeadings {
  #role: string | undefined;
  #headings: HTMLElement[] = [];

  /** `role`: The ARIA role of the headings, such as `listitem` in a list. */
  constructor(role?: string) {
    this.#role = role;
  }

  /** Returns the elements, with a heading before each one whose host differs from that of the element before. */
  insert(elements: [HTMLElement, string][]): HTMLElement[] {
    const result: HTMLElement[] = [];
    let count = 0;
    let before = "";
    for (const [element, host] of elements) {
      if (host !== before) result.push(this.#heading(count++, host));
      result.push(element);
      before = host;
    }
    return result;
  }

  #heading(index: number, host: string): HTMLElement {
    this.#headings[index] ??= make("div", "na-machine");
    const heading = this.#headings[index] as HTMLElement;
    if (this.#role) setAttribute(heading, "role", this.#role);
    setText(heading, host);
    return heading;
  }
}
