import { nothing, render } from "lit-html";
import { live } from "lit-html/directives/live.js";
import { make } from "./dom";
import { canNotify } from "./page";
import { choose, chosen } from "./preferences";
import { html } from "./template";

/** What is known of the run, and what the page does besides. */
export class About {
  readonly element = make("div", "na-about");
  #facts: Record<string, string> = {};
  #hint = "";

  constructor() {
    this.#draw();
  }

  update(facts: Record<string, string>): void {
    if (facts === this.#facts) return;
    this.#facts = facts;
    this.#draw();
  }

  #draw(): void {
    const facts = Object.entries(this.#facts);
    const isNotified = chosen("notify") && canNotify() && Notification.permission === "granted";
    const blocked = canNotify() ? nothing : "Browsers allow notifications only on localhost and over HTTPS";
    render(
      html`<dl class="na-about-facts">${facts.map(
        ([name, fact]) => html`<dt class="na-key">${name}</dt><dd class="na-about-fact">${fact}</dd>`,
      )}</dl>
      <div class="na-options">
        <label class="na-option"><input type="checkbox" .checked=${live(chosen("tab-title"))}
          @change=${(event: Event) => choose("tab-title", isTicked(event))}> Show progress in the tab's title</label>
        <label class="na-option" title=${blocked}><input type="checkbox" .checked=${live(isNotified)}
          ?disabled=${!canNotify()} @change=${(event: Event) => this.#notify(isTicked(event))}> Notify me when a job
          ends</label>
        <span class="na-feedback" aria-live="polite">${this.#hint}</span>
      </div>`,
      this.element,
    );
  }

  /** Asks for the permission to notify: only here, since the user has just wished for it. */
  async #notify(isWished: boolean): Promise<void> {
    choose("notify", isWished);
    const isBlocked = isWished && (await Notification.requestPermission()) !== "granted";
    if (isBlocked) choose("notify", false);
    this.#hint = isBlocked ? "The browser blocks notifications for this page; its settings can allow them" : "";
    this.#draw();
  }
}

function isTicked(event: Event): boolean {
  return (event.target as HTMLInputElement).checked;
}
