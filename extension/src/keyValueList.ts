import { make, setText } from "./dom";

/** Draws names with their values, and reuses the elements that exist. */
export function drawKeyValueList(parent: HTMLElement, pairs: [string, string][]): void {
  pairs.forEach(([name, value], index) => {
    let pair = parent.children[index] as HTMLElement | undefined;
    if (pair === undefined) {
      pair = make("span", "na-pair", {}, make("span", "na-key"), " ", make("span", "na-number"));
      parent.append(pair);
    }
    setText(pair.children[0] as HTMLElement, name);
    setText(pair.children[1] as HTMLElement, value);
  });
  while (parent.children.length > pairs.length) parent.lastElementChild?.remove();
}
