import { describe, expect, it } from "vitest";
import type { Model } from "../src/host";
import table from "../src/jobs";
import { find } from "./examples";

const COLUMNS = ["Job", "Status"];

function open(rows: object[]) {
  const fields: Record<string, unknown> = { columns: COLUMNS, rows };
  const sent: object[] = [];
  let onChange = () => {};
  const model = {
    get: (name: string) => fields[name],
    send: (content: object) => sent.push(content),
    on: (_: string, callback: () => void) => {
      onChange = callback;
    },
  };
  const el = document.createElement("div");
  document.body.replaceChildren(el);
  table.render({ model: model as unknown as Model, el });
  const change = (changed: object[]) => {
    fields.rows = changed;
    onChange();
  };
  return { el, sent, change };
}

const RUNNING = { id: "a1b2c3", cells: ["a1b2c3", "running"], live: true };
const DONE = { id: "d4e5f6", cells: ["d4e5f6", "done"], live: false };

describe("the table of jobs", () => {
  it("offers to stop what runs, and to show everything", () => {
    const { el, sent } = open([RUNNING, DONE]);
    find(el, "[aria-label='Stop a1b2c3']").click();
    find(el, "[aria-label='Stop a1b2c3']").click();
    find(el, "[aria-label='Attach d4e5f6']").click();
    expect(sent).toEqual([
      { cmd: "stop", job: "a1b2c3" },
      { cmd: "attach", job: "d4e5f6" },
    ]);
    expect(find(el, "[aria-label='Stop d4e5f6']").hidden).toBe(true);
  });

  it("keeps the focus where rows change", () => {
    const { el, change } = open([RUNNING]);
    const attach = find(el, "[aria-label='Attach a1b2c3']");
    attach.focus();
    change([DONE, { ...RUNNING, cells: ["a1b2c3", "cancelled"], live: false }]);
    expect(document.activeElement).toBe(attach);
    expect([...el.querySelectorAll("tbody tr")].map((row) => row.firstElementChild?.textContent)).toEqual([
      "d4e5f6",
      "a1b2c3",
    ]);
    expect(find(el, "[data-job='a1b2c3']").textContent).toContain("cancelled");
  });
});
