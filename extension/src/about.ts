import { make, setAttribute, setText } from "./dom";
import { canNotify } from "./page";
import { choose, chosen, type Preference } from "./preferences";

/** What is known of the run, unfolded on request, and what the page does besides. */
export class About {
  readonly element: HTMLDetailsElement;
  #facts = make("dl", "na-about-facts");
  #drawn: Record<string, string> | undefined;
  #hint = make("span", "na-feedback", { "aria-live": "polite" });

  constructor() {
    const summary = make("summary", "na-fold", {}, "About this run");
    const title = this.#choice("tab-title", "Show progress in the tab's title");
    const notify = this.#choice("notify", "Notify me when a job ends");
    const box = notify.firstElementChild as HTMLInputElement;
    box.checked = chosen("notify") && canNotify() && Notification.permission === "granted";
    box.disabled = !canNotify();
    setAttribute(notify, "title", canNotify() ? null : "The browser lets only pages of this machine or https notify");
    box.addEventListener("change", () => void this.#ask(box));
    const options = make("div", "na-options", {}, title, notify, this.#hint);
    this.element = make("details", "na-about", {}, summary, this.#facts, options);
  }

  update(facts: Record<string, string>): void {
    if (facts === this.#drawn) return;
    this.#drawn = facts;
    Object.entries(facts).forEach(([name, fact], index) => {
      const at = 2 * index;
      if (this.#facts.children.length <= at) this.#facts.append(make("dt", "na-key"), make("dd", "na-about-fact"));
      setText(this.#facts.children[at] as HTMLElement, name);
      setText(this.#facts.children[at + 1] as HTMLElement, fact);
    });
    while (this.#facts.children.length > 2 * Object.keys(facts).length) this.#facts.lastElementChild?.remove();
  }

  #choice(name: Preference, text: string): HTMLLabelElement {
    const box = make("input", "", { type: "checkbox" });
    box.checked = chosen(name);
    box.addEventListener("change", () => choose(name, box.checked));
    return make("label", "na-option", {}, box, ` ${text}`);
  }

  /** Asks for the permission to notify: only here, since the user has just wished for it. */
  async #ask(box: HTMLInputElement): Promise<void> {
    setText(this.#hint, "");
    if (!box.checked || (await Notification.requestPermission()) === "granted") return;
    box.checked = false;
    choose("notify", false);
    setText(this.#hint, "The browser blocks notifications for this page; its settings can allow them");
  }
}
