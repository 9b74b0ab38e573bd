import { nothing, render, type TemplateResult } from "lit-html";
import { live } from "lit-html/directives/live.js";
import { make } from "./dom";
import type { Command, Field, Controls as Model } from "./model";
import { html } from "./template";

/** Buttons that pause, save and end the training, and fields for what can be changed while it runs. */
export class Controls {
  readonly element = make("div", "na-controls", { role: "group", "aria-label": "Controls of the training" });
  #send: (content: object) => void;
  #model: Model | undefined;
  #feedback = "";
  /** What the user has typed, by the name of the value: it stays until the value that it is to replace changes. */
  #typed = new Map<string, { text: string; over: string }>();

  /** @param send Sends a message to the kernel. */
  constructor(send: (content: object) => void) {
    this.#send = (content) => send({ cmd: "control", ...content });
    this.element.hidden = true;
  }

  update(model: Model): void {
    if (model === this.#model) return;
    this.#model = model;
    this.#feedback = model.feedback;
    for (const { name, value } of model.fields) if (this.#typed.get(name)?.over !== value) this.#typed.delete(name);
    this.#draw(model);
  }

  #draw(model: Model): void {
    this.element.hidden = model.commands.length === 0;
    const buttons = model.commands.map((command) => this.#button(model, command));
    const fields = model.fields.map((field) => this.#field(model, field));
    render(
      html`${buttons}${fields}<span class="na-feedback" aria-live="polite">${this.#feedback}</span>`,
      this.element,
    );
  }

  /** A button; one that is not possible can have the focus, and says why. */
  #button(model: Model, { action, label, hint, possible }: Command): TemplateResult {
    const onClick = () => {
      if (possible) return this.#send({ action });
      this.#feedback = hint;
      this.#draw(model);
    };
    return html`<button type="button" class="na-control" data-action=${action} title=${hint}
      aria-disabled=${possible ? nothing : "true"} @click=${onClick}>${label}</button>`;
  }

  /** A value with a button that changes it; Escape brings the value back that it has. */
  #field(model: Model, { action, name, value, hint, example, step }: Field): TemplateResult {
    const text = this.#typed.get(name)?.text ?? value;
    const onInput = (event: Event) => {
      this.#typed.set(name, { text: (event.target as HTMLInputElement).value, over: value });
      this.#draw(model);
    };
    const onKey = (event: KeyboardEvent) => {
      event.stopPropagation(); // the notebook has shortcuts
      if (event.key !== "Escape") return;
      event.preventDefault(); // otherwise, a dialog around the panel would close
      this.#typed.delete(name);
      this.#draw(model);
    };
    const onSubmit = (event: Event) => {
      event.preventDefault();
      this.#send({ action, name, value: text });
    };
    return html`<form class="na-tunable" novalidate @submit=${onSubmit}>
      <label class="na-field">
        <span class="na-key">${name}</span>
        <input class="na-input" type=${step ? "number" : "text"} step=${step || nothing} title=${hint || nothing}
          placeholder=${example || nothing}
          .value=${live(text)} @input=${onInput} @keydown=${onKey}>
      </label>
      <button type="submit" class="na-control" aria-label="Set ${name}" ?disabled=${text === value}>Set</button>
    </form>`;
  }
}
