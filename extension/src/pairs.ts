import { make, setText } from "./dom";

/** Names with their values, in place: what is there already stays. */
export function drawPairs(parent: HTMLElement, pairs: [string, string][]): void {
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
