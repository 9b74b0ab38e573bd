/** The colors of lines, in their order. Each has a contrast of at least 3:1 on white and on JupyterLab's dark #111. */
export const SERIES = ["#2f81d0", "#c9660c", "#2e8b57", "#9a5bd6", "#d64545", "#0d8c9c", "#cc4a94", "#8a7a1c"];

/** The colors of the page, as a canvas takes them. */
export interface Palette {
  ink: string;
  muted: string;
  line: string;
  grid: string;
  red: string;
  font: string;
}

const NAMES = { ink: "--na-ink", muted: "--na-muted", line: "--na-line", grid: "--na-grid", red: "--na-red" };

let known: Palette | undefined;

/** The colors of the page, which are those of `element`, in any panel. In a high-contrast mode, lines have the color of text. */
export function paletteOf(element: HTMLElement): Palette {
  known ??= read(element);
  return known;
}

function read(element: HTMLElement): Palette {
  const probe = element.appendChild(document.createElement("span"));
  const color = (name: string) => {
    probe.style.color = `var(${name})`;
    return getComputedStyle(probe).color;
  };
  const palette = Object.fromEntries(Object.entries(NAMES).map(([key, name]) => [key, color(name)]));
  probe.remove();
  return { ...(palette as Omit<Palette, "font">), font: getComputedStyle(element).fontFamily };
}

/** The color of a line, as style sheets have it; -1 is a neutral one. On a canvas, `muted` is that of the palette. */
export function colorOf(index: number, muted = "var(--na-muted)"): string {
  return index < 0 ? muted : (SERIES[index % SERIES.length] as string);
}

const watchers = new Set<() => void>();
let unwatch: (() => void) | undefined;

/** Calls `callback` when the theme of the page may have changed; returns an unsubscribe function. */
export function watchTheme(callback: () => void): () => void {
  watchers.add(callback);
  unwatch ??= watch(() => {
    known = undefined;
    for (const each of watchers) each();
  });
  return () => {
    watchers.delete(callback);
    if (watchers.size > 0) return;
    unwatch?.();
    unwatch = known = undefined;
  };
}

function watch(callback: () => void): () => void {
  const observer = new MutationObserver(callback);
  const attributes = ["class", "style", "data-jp-theme-name", "data-vscode-theme-kind", "data-theme"];
  for (const element of [document.documentElement, document.body]) {
    observer.observe(element, { attributes: true, attributeFilter: attributes });
  }
  const queries = ["(prefers-color-scheme: dark)", "(forced-colors: active)"].map((query) => matchMedia(query));
  for (const query of queries) query.addEventListener("change", callback);
  return () => {
    observer.disconnect();
    for (const query of queries) query.removeEventListener("change", callback);
  };
}
