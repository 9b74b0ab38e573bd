/**
 * Puts how a job is getting on before the title of the browser's tab. The front end sets that title, too, when the user
 * opens another file: what it has set last is what comes back.
 */
export class TabTitle {
  #shown: { prefix: string; title: string } | undefined;

  /** Shows this text, or what the title was if it is empty. */
  show(text: string): void {
    const own = this.#shown !== undefined && document.title === this.#shown.title;
    const rest = own ? (this.#shown as { title: string; prefix: string }).title.slice(this.#length) : document.title;
    if (!text) {
      if (own) document.title = rest;
      this.#shown = undefined;
      return;
    }
    const prefix = `${text} — `;
    const title = prefix + rest;
    if (document.title !== title) document.title = title;
    this.#shown = { prefix, title: document.title };
  }

  get #length(): number {
    return this.#shown?.prefix.length ?? 0;
  }
}
