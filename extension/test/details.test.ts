import { beforeEach, describe, expect, it } from "vitest";
import { aLink, aStore, drawn, find } from "./examples";

/** A panel whose rank 1 is expanded. */
async function anExpandedRow() {
  const store = aStore(2);
  const sent: object[] = [];
  const panel = aLink(store, (content) => "id" in content || sent.push(content)).open();
  panel.moveInto(document.body);
  const row = find(panel.element, '.na-row[data-rank="1"]');
  find(row, ".na-toggle").click();
  await drawn();
  return { row, store, sent };
}

beforeEach(() => {
  document.body.replaceChildren();
});

describe("an expanded rank", () => {
  it("has what its process and its device do", async () => {
    const { row } = await anExpandedRow();
    const pairs = [...row.querySelectorAll(".na-all-values .na-pair")].map((pair) => pair.textContent);
    expect(pairs).toEqual(["loss 0.5", "memory 512 MB, GPU 2.0 GB", "CPU 98% of a core", "temperature 66 °C"]);
  });

  it("has values in the order of the metrics, also with names that are numbers", async () => {
    const { row, store } = await anExpandedRow();
    const metric_names = ["loss", "10", "2"];
    const values = { "2": "0.2", "10": "0.1", loss: "0.5" };
    store.apply({ seq: 1, patch: { head: { metric_names }, ranks: { "1": { values } } } });
    await drawn();
    const names = (list: string) => [...row.querySelectorAll(`${list} .na-key`)].map((key) => key.textContent);
    const titles = [...(row.parentElement?.parentElement?.querySelectorAll(".na-titles .na-values > *") ?? [])];
    expect(titles.map((title) => title.textContent)).toEqual(metric_names);
    expect(names(".na-all-values").slice(0, 3)).toEqual(metric_names);
  });

  it("is searched for lines, also as more of them come", async () => {
    const { row, store } = await anExpandedRow();
    const first = { "7": "loss 1", "8": "<b>Saved</b>", "9": "loss 2" };
    store.apply({ seq: 1, patch: { ranks: { "1": { lines: first } } } });
    await drawn();
    const search = find(row, ".na-search") as HTMLInputElement;
    const type = (text: string) => {
      search.value = text;
      search.dispatchEvent(new Event("input"));
    };
    const lines = () => [...row.querySelectorAll(".na-lines > *")].map((line) => line.textContent);
    type("LOSS");
    expect(find(row, ".na-count").textContent).toBe("2 of the last 3 lines");
    store.apply({ seq: 2, patch: { ranks: { "1": { lines: { "10": "a loss of loss" } } } } });
    await drawn();
    expect(lines()).toEqual(["loss 1", "loss 2", "a loss of loss"]);
    expect(row.querySelectorAll(".na-lines mark")).toHaveLength(4);
    type("none");
    expect(find(row, ".na-lines").matches("[data-searched]:empty")).toBe(true);
    type("");
    expect(lines()).toEqual(["loss 1", "<b>Saved</b>", "loss 2", "a loss of loss"]);
    expect(find(row, ".na-count").textContent).toBe("");
  });

  it("keeps what is typed in its search from the notebook's shortcuts", async () => {
    const { row } = await anExpandedRow();
    const pressed: string[] = [];
    const listen = (event: KeyboardEvent) => pressed.push(event.key);
    document.addEventListener("keydown", listen);
    for (const target of [find(row, ".na-search"), row]) {
      target.dispatchEvent(new KeyboardEvent("keydown", { key: target === row ? "a" : "b", bubbles: true }));
    }
    document.removeEventListener("keydown", listen);
    expect(pressed).toEqual(["a"]);
  });

  it("is asked for its stack while it runs, and the kernel is told that it is expanded", async () => {
    const { row, store, sent } = await anExpandedRow();
    find(row, ".na-ask").click();
    expect(sent).toEqual([
      { cmd: "expanded", ranks: [1] },
      { cmd: "stack", rank: 1 },
    ]);
    expect(find(row, ".na-stack").hidden).toBe(true);
    store.apply({ seq: 1, patch: { ranks: { "1": { stack: "train.py line 3" } } } });
    await drawn();
    expect(find(row, ".na-stack").textContent).toBe("train.py line 3");
    store.apply({ seq: 2, patch: { ranks: { "1": { phase: "done", stack: "" } } } });
    await drawn();
    expect(find(row, ".na-ask").hidden).toBe(true);
    find(row, ".na-toggle").click();
    expect(sent.at(-1)).toEqual({ cmd: "expanded", ranks: [] });
  });
});
