/**
 * The attribute of an element that takes keys itself while it has the focus. In command mode, JupyterLab and Notebook
 * otherwise take arrow keys and letters for themselves before the element hears of them. The attribute of an element around
 * it is not enough: many of their shortcuts are those of whatever has the focus. Templates have it in their text.
 */
export const OWN_KEYS = { "data-lm-suppress-shortcuts": "true" };

/** Creates an element. */
export function make<Name extends keyof HTMLElementTagNameMap>(
  name: Name,
  className: string,
  attributes: Record<string, string> = {},
  ...children: (Node | string)[]
): HTMLElementTagNameMap[Name] {
  const element = document.createElement(name);
  if (className) element.className = className;
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

/** Sets an element's text, but only if it differs, since each write costs a layout. */
export function setText(element: HTMLElement, text: string): void {
  const first = element.firstChild;
  if (first instanceof Text) {
    if (first.data !== text) first.data = text;
  } else if (text) {
    element.append(text);
  }
}

/** Sets an attribute, or removes it if `value` is `null`, but only if that changes something. */
export function setAttribute(element: Element, name: string, value: string | null): void {
  if (element.getAttribute(name) === value) return;
  if (value === null) element.removeAttribute(name);
  else element.setAttribute(name, value);
}

/** Makes `parent` contain exactly these children in this order. Those already in position are not moved. */
export function setChildren(parent: Element, children: Element[]): void {
  children.forEach((child, index) => {
    const current = parent.children[index];
    if (current !== child) parent.insertBefore(child, current ?? null);
  });
  while (parent.children.length > children.length) parent.lastElementChild?.remove();
}

/** A fraction in thousandths as `57%`, rounded down so that only the end is 100%; empty if it is unknown (negative). */
export function percent(done: number): string {
  return done < 0 ? "" : `${Math.floor(done / 10)}%`;
}

const PAGE = Math.random().toString(36).slice(2);
let count = 0;

/** A unique ID. */
export function newId(): string {
  count += 1;
  return `na-${Date.now().toString(36)}-${PAGE}-${count}`;
}

/** The entries in the order of names, as objects list names that are numbers first; those without a name are last. */
export function inOrderOf<Value>(names: string[], values: Record<string, Value>): [string, Value][] {
  const ordered = new Set([...names.filter((name) => name in values), ...Object.keys(values)]);
  return [...ordered].map((name) => [name, values[name] as Value]);
}

/** The entries, sorted by their numeric keys. */
export function inOrder<Value>(numbered: Record<string, Value>): [string, Value][] {
  return Object.entries(numbered).sort(([one], [other]) => Number(one) - Number(other));
}
