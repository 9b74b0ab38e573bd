/** What the user has chosen in this browser, for all panels. */
export type Preference = "tab-title" | "notify";

const DEFAULTS: Record<Preference, boolean> = { "tab-title": true, notify: false };
const listeners = new Set<() => void>();

export function chosen(name: Preference): boolean {
  try {
    const found = localStorage.getItem(`notebook-accel:${name}`);
    return found === null ? DEFAULTS[name] : found === "on";
  } catch {
    return DEFAULTS[name]; // the browser stores nothing for this page
  }
}

export function choose(name: Preference, on: boolean): void {
  try {
    localStorage.setItem(`notebook-accel:${name}`, on ? "on" : "off");
  } catch {
    DEFAULTS[name] = on; // for as long as the page is open
  }
  for (const listener of listeners) listener();
}

/** Calls `listener` after each choice; returns an unsubscribe function. */
export function onChoice(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}
