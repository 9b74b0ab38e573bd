/** Makes an element. */
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

/** Gives an element another text, only if it is another: each write costs a layout. */
export function setText(element: HTMLElement, text: string): void {
  const first = element.firstChild;
  if (first instanceof Text) {
    if (first.data !== text) first.data = text;
  } else if (text) {
    element.append(text);
  }
}

/** Gives an attribute another value, or takes it away (`null`), only if that changes something. */
export function setAttribute(element: Element, name: string, value: string | null): void {
  if (element.getAttribute(name) === value) return;
  if (value === null) element.removeAttribute(name);
  else element.setAttribute(name, value);
}

/** Makes `parent` hold exactly these children in this order, and moves none that is in its place already. */
export function setChildren(parent: Element, children: Element[]): void {
  children.forEach((child, index) => {
    const there = parent.children[index];
    if (there !== child) parent.insertBefore(child, there ?? null);
  });
  while (parent.children.length > children.length) parent.lastElementChild?.remove();
}

/** `57%`; rounded down, so that only the end is 100%. Empty where it is not known. */
export function percent(done: number): string {
  return done < 0 ? "" : `${Math.floor(done / 10)}%`;
}

let count = 0;

/** An id that is the only one in its page. */
export function newId(): string {
  count += 1;
  return `na-${Date.now().toString(36)}-${count}`;
}
