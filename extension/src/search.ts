import type { TemplateResult } from "lit-html";
import { html } from "./template";

/**
 * The field above a list that leaves those items with what the user types.
 * @param label - What it does, such as `Filter jobs`.
 * @param found - Called with what the user has typed.
 */
export function searchField(label: string, found: (search: string) => void, isHidden = false): TemplateResult {
  const onInput = (event: Event) => found((event.target as HTMLInputElement).value);
  const onKey = (event: Event) => event.stopPropagation(); // the notebook has shortcuts
  return html`<input class="na-search" type="search" placeholder=${label} aria-label=${label}
    data-lm-suppress-shortcuts="true" ?hidden=${isHidden} @input=${onInput} @keydown=${onKey}>`;
}

/** Whether any of the texts has each of the words that the user has typed. */
export function matches(search: string, texts: string[]): boolean {
  const text = texts.join(" ").toLowerCase();
  return search
    .toLowerCase()
    .split(/\s+/)
    .every((word) => text.includes(word));
}
