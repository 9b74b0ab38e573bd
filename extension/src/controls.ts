import { make, setAttribute, setChildren, setText } from "./dom";
import type { Command, Controls as Model, Tunable } from "./model";

/** Buttons that pause, save and end the training, and fields for values that can be tuned while it runs. */
export class Controls {
  readonly element = make("div", "na-controls", { role: "group", "aria-label": "Controls of the training" });
  #send: (content: object) => void;
  #buttons: CommandButton[] = [];
  #fields = new Map<string, TunableField>();
  #feedback = make("span", "na-feedback", { "aria-live": "polite" });
  #drawn: Model | undefined;

  /** @param send Sends a message to the kernel. */
  constructor(send: (content: object) => void) {
    this.#send = send;
    this.element.hidden = true;
  }

  update(model: Model): void {
    if (model === this.#drawn) return;
    this.#drawn = model;
    this.element.hidden = model.commands.length === 0;
    model.commands.forEach((command, index) => {
      this.#buttons[index] ??= new CommandButton((content) => this.#request(content));
      this.#buttons[index].update(command);
    });
    this.#buttons.length = model.commands.length;
    for (const tunable of model.tunables) {
      const field = this.#fields.get(tunable.name) ?? new TunableField((content) => this.#request(content));
      this.#fields.set(tunable.name, field);
      field.update(tunable);
    }
    setText(this.#feedback, model.feedback);
    const fields = model.tunables.map(({ name }) => (this.#fields.get(name) as TunableField).element);
    setChildren(this.element, [...this.#buttons.map((button) => button.element), ...fields, this.#feedback]);
  }

  /** Sends a request, or shows why there is none to send. */
  #request(content: object | string): void {
    if (typeof content === "string") setText(this.#feedback, content);
    else this.#send({ cmd: "control", ...content });
  }
}

type Request = (content: object | string) => void;

/** A button; one that is not possible can have the focus, and says why. */
class CommandButton {
  readonly element = make("button", "na-control", { type: "button" });
  #command: Command | undefined;

  constructor(request: Request) {
    this.element.addEventListener("click", () => {
      if (this.#command?.possible) request({ action: this.#command.action });
      else if (this.#command) request(this.#command.hint);
    });
  }

  update(command: Command): void {
    this.#command = command;
    setText(this.element, command.label);
    setAttribute(this.element, "data-action", command.action);
    setAttribute(this.element, "title", command.hint);
    setAttribute(this.element, "aria-disabled", command.possible ? null : "true");
  }
}

/** A number with a button that changes it. What the user types stays until the value changes, or Escape is pressed. */
class TunableField {
  readonly element: HTMLFormElement;
  #input = make("input", "na-number-field", { type: "number", step: "any" });
  #name = make("span", "na-key");
  #set = make("button", "na-control", { type: "submit" }, "Set");
  #shown = "";

  constructor(request: Request) {
    const label = make("label", "na-field", {}, this.#name, this.#input);
    this.element = make("form", "na-tunable", { novalidate: "" }, label, this.#set);
    this.#input.addEventListener("input", () => this.#draw());
    this.#input.addEventListener("keydown", (event) => {
      event.stopPropagation(); // the notebook has shortcuts
      if (event.key !== "Escape") return;
      event.preventDefault(); // otherwise, a dialog around the panel would close
      this.#reset();
    });
    this.element.addEventListener("submit", (event) => {
      event.preventDefault();
      request({ action: "tune", name: this.#name.textContent, value: this.#input.value });
    });
  }

  update(tunable: Tunable): void {
    setText(this.#name, tunable.name);
    setAttribute(this.#input, "title", tunable.hint || null);
    setAttribute(this.#input, "step", tunable.whole ? "1" : "any");
    setAttribute(this.#set, "aria-label", `Set ${tunable.name}`);
    if (tunable.value === this.#shown) return;
    this.#shown = tunable.value;
    this.#reset();
  }

  #reset(): void {
    this.#input.value = this.#shown;
    this.#draw();
  }

  #draw(): void {
    this.#set.disabled = this.#input.value === this.#shown;
  }
}
