import { render } from "lit-html";
import { expect, test } from "vitest";
import { html } from "../src/template";

function drawn(template: unknown): string {
  const place = document.createElement("div");
  render(template, place);
  return place.innerHTML.replace(/<!--.*?-->/g, "");
}

test("a line break beside a tag or an element is not drawn, and other white space is", () => {
  const inner = html`<b title=${"two words"}
    lang="en">${1}</b>`;
  expect(
    drawn(html`
      <p>
        ${inner}
        ${2} ${3}
        one <i>two</i> three
        four
      </p>
    `),
  ).toBe('<p><b lang="en" title="two words">1</b>2 3one <i>two</i> three\n        four</p>');
});
