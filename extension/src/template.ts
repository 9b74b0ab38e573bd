import { html as litHtml, type TemplateResult } from "lit-html";

/** The strings of each template without what is only for the reader. */
const compact = new WeakMap<TemplateStringsArray, TemplateStringsArray>();

/** A template of lit-html, in which a line break beside a tag or an element is only for the reader, as in JSX. */
export function html(strings: TemplateStringsArray, ...values: unknown[]): TemplateResult<1> {
  let found = compact.get(strings);
  if (found === undefined) {
    found = Object.assign(withoutBreaks(strings), { raw: strings.raw });
    compact.set(strings, found);
  }
  return litHtml(found, ...values);
}

function withoutBreaks(strings: readonly string[]): string[] {
  let isInTag = false;
  return strings.map((text) => {
    const first = isInTag ? text : text.replace(/^\s*\n\s*/, "");
    if (/[<>]/.test(text)) isInTag = text.lastIndexOf("<") > text.lastIndexOf(">");
    const last = isInTag ? first : first.replace(/\s*\n\s*$/, "");
    return last.replace(/>\s*\n\s*/g, ">").replace(/\s*\n\s*</g, "<");
  });
}
