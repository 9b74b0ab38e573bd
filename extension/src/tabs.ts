import { make, newId, setAttribute, setChildren, setText } from "./dom";

/** A tab, and what it shows. */
export interface Tab {
  label: string;
  element: HTMLElement;
  /** Called when the tab is chosen, or no longer is. */
  onChoose?: (isChosen: boolean) => void;
}

/** Tabs, of which one is chosen. Arrow keys move between them. */
export class Tabs {
  readonly element: HTMLElement;
  #tabs: Tab[];
  #buttons: HTMLButtonElement[];
  #chosen = 0;

  constructor(label: string, tabs: Tab[]) {
    this.#tabs = tabs;
    const list = make("div", "na-tablist", { role: "tablist", "aria-label": label });
    this.#buttons = tabs.map((tab, index) => {
      const panel = make("div", "na-tabpanel", { role: "tabpanel", id: newId() }, tab.element);
      const button = make("button", "na-tab", { type: "button", role: "tab", "aria-controls": panel.id }, tab.label);
      button.id = newId();
      panel.setAttribute("aria-labelledby", button.id);
      button.addEventListener("click", () => this.choose(index));
      return button;
    });
    list.append(...this.#buttons);
    list.addEventListener("keydown", (event) => this.#move(event));
    this.element = make("div", "na-tabs");
    setChildren(this.element, [list, ...tabs.map(({ element }) => element.parentElement as HTMLElement)]);
    this.#draw();
  }

  /** Shows a number beside the label of a tab, unless it is 0. */
  setCount(index: number, count: number): void {
    const { label } = this.#tabs[index] as Tab;
    setText(this.#buttons[index] as HTMLElement, count ? `${label} (${count})` : label);
  }

  /** Shows a tab. */
  choose(index: number): void {
    if (index === this.#chosen) return;
    this.#tabs[this.#chosen]?.onChoose?.(false);
    this.#chosen = index;
    this.#tabs[index]?.onChoose?.(true);
    this.#draw();
  }

  #move(event: KeyboardEvent): void {
    const last = this.#buttons.length - 1;
    const targets: Record<string, number> = {
      ArrowRight: this.#chosen === last ? 0 : this.#chosen + 1,
      ArrowLeft: this.#chosen === 0 ? last : this.#chosen - 1,
      Home: 0,
      End: last,
    };
    const target = targets[event.key];
    if (target === undefined) return;
    event.preventDefault();
    this.choose(target);
    this.#buttons[target]?.focus();
  }

  #draw(): void {
    this.#buttons.forEach((button, index) => {
      const isChosen = index === this.#chosen;
      setAttribute(button, "aria-selected", String(isChosen));
      button.tabIndex = isChosen ? 0 : -1;
      (this.#tabs[index]?.element.parentElement as HTMLElement).hidden = !isChosen;
    });
  }
}
