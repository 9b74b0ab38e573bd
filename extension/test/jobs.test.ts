import { afterEach, describe, expect, it } from "vitest";
import widget from "../src/jobs";
import { FakeModel, find } from "./examples";

const COLUMNS = ["Job", "Status"];
const ends: (() => void)[] = [];

afterEach(() => {
  for (const end of ends.splice(0)) end();
});

function open(rows: object[]) {
  const model = new FakeModel(undefined, { columns: COLUMNS, rows });
  const el = document.createElement("div");
  document.body.replaceChildren(el);
  const { initialize, render } = widget();
  ends.push(initialize({ model }));
  render({ model, el });
  return { el, model, change: (changed: object[]) => model.change("rows", changed) };
}

const RUNNING = { id: "a1b2c3", cells: ["a1b2c3", "running"], live: true };
const DONE = { id: "d4e5f6", cells: ["d4e5f6", "done"], live: false };

describe("the table of jobs", () => {
  it("offers to stop what runs, and to show everything", () => {
    const { el, model } = open([RUNNING, DONE]);
    find(el, "[aria-label='Stop a1b2c3']").click();
    find(el, "[aria-label='Stop a1b2c3']").click();
    find(el, "[aria-label='Attach d4e5f6']").click();
    expect(model.sent).toEqual([{ cmd: "ready" }, { cmd: "stop", job: "a1b2c3" }, { cmd: "attach", job: "d4e5f6" }]);
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

  it("tells the kernel that the page is there, and that it is being left, also while the kernel is busy", () => {
    const { el, model, change } = open([RUNNING]);
    const control: unknown[] = [];
    model.widget_manager.kernel.sendControlMessage = (message) => {
      control.push((message.content as { notebook_accel: { content: object } }).notebook_accel.content);
    };
    model.receive({ control: true });
    change([DONE]);
    find(el, "[aria-label='Attach d4e5f6']")?.click();
    window.dispatchEvent(new Event("pagehide"));
    expect(control).toEqual([{ cmd: "seen" }, { cmd: "attach", job: "d4e5f6" }, { cmd: "left" }]);
  });
});
