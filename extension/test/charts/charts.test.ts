import { beforeEach, describe, expect, it, vi } from "vitest";
import { Charts } from "../../src/charts";
import { SmallChart } from "../../src/charts/smallChart";
import widget from "../../src/index";
import type { Metric } from "../../src/model";
import { aLink, aMetric, aState, drawn, FakeModel, find } from "../examples";

const texts = (root: ParentNode, selector: string) =>
  [...root.querySelectorAll(selector)].map((element) => element.textContent);

/** A panel of two ranks with charts; the model records what it asks. */
async function open(metrics: Record<string, Metric>, note = "") {
  const state = aState(2, { metric_names: Object.keys(metrics), metrics_note: note });
  const model = new FakeModel({ seq: 0, state: { ...state, metrics } });
  const { initialize, render } = widget();
  initialize({ model });
  render({ el: document.body });
  await drawn();
  const asked = (cmd: string) => model.sent.filter((each) => (each as { cmd: string }).cmd === cmd) as { id: string }[];
  return { model, panel: find(document, ".na-panel"), asked };
}

beforeEach(() => {
  document.body.replaceChildren();
  localStorage.clear();
});

describe("charts", () => {
  it("are above the ranks, and tell where the metrics are that can't be chosen", async () => {
    const { panel } = await open({ loss: aMetric(), other: aMetric() }, "and 3 more");
    expect(texts(panel, ".na-chart .na-key")).toEqual(["loss", "other"]);
    expect(find(panel, ".na-more").textContent).toBe("and 3 more");
    const above = Node.DOCUMENT_POSITION_PRECEDING;
    expect(find(panel, ".na-ranks").compareDocumentPosition(find(panel, ".na-charts")) & above).toBe(above);
  });

  it("are drawn in turn where new values come with every frame", () => {
    const drawn: (string | undefined)[] = [];
    vi.spyOn(SmallChart.prototype, "draw").mockImplementation(function (this: SmallChart) {
      drawn.push(this.element.dataset.metric);
      return true;
    });
    const charts = new Charts(() => undefined, aLink());
    const metrics = { loss: aMetric(), lr: aMetric(), accuracy: aMetric() };
    const state = { ...aState(2, { metric_names: Object.keys(metrics) }), metrics };
    for (let frame = 0; frame < 4; frame += 1) charts.update(state);
    expect(drawn).toEqual(["loss", "lr", "accuracy", "loss"]);
    vi.restoreAllMocks();
  });

  it("say in words what they show", async () => {
    const facts = ["most 50 at step 12", "1 NaN and 2 infinite, first at step 30"];
    const { panel } = await open({
      loss: aMetric({ range: "0.4 to 0.6 over ranks", brief: "best 0.4 at step 9", facts }),
    });
    const label = find(panel, "[role=img]").getAttribute("aria-label");
    expect(label).toBe(`loss: 0.5, 0.4 to 0.6 over ranks, ${facts.join(", ")}`);
    expect(texts(panel, ".na-facts")).toEqual(["best 0.4 at step 9"]);
  });

  it("are marked while there is a single value, which is only a number once the job is over", async () => {
    const parameters = aMetric({ now: "12345", x: [1], mean: [12345] });
    const { panel, model } = await open({ loss: aMetric(), parameters });
    const single = () => [...panel.querySelectorAll<HTMLElement>(".na-chart")].map((each) => "single" in each.dataset);
    expect(single()).toEqual([false, true]);
    expect(texts(panel, ".na-chart-now .na-value")).toEqual(["0.5", "12345"]);
    model.receive({ seq: 1, patch: { metrics: { parameters: { x: [1, 2], mean: [12345, 12346] } } } });
    await drawn();
    expect(single()).toEqual([false, false]);
  });

  it("come later than the names of their metrics, whatever these are", async () => {
    const names = ["constructor", "__proto__"];
    const model = new FakeModel({ seq: 0, state: aState(2, { metric_names: names }) });
    const { initialize, render } = widget();
    initialize({ model });
    render({ el: document.body });
    await drawn();
    const metrics = Object.fromEntries(names.map((name) => [name, { ...aMetric() }]));
    model.receive({ seq: 1, patch: JSON.parse(JSON.stringify({ metrics })) });
    await drawn();
    expect(texts(document, ".na-chart .na-key")).toEqual(names);
  });

  it("show the user's words as words", async () => {
    const { panel } = await open({ "<img src=x>": aMetric({ now: "<b>1</b>" }) });
    expect(panel.querySelector("img, b")).toBeNull();
    expect(texts(panel, ".na-chart .na-key")).toEqual(["<img src=x>"]);
  });

  it("ask the kernel for one that is enlarged, and give back the focus when it is closed", async () => {
    const { panel, asked } = await open({ loss: aMetric() });
    find(panel, ".na-enlarge").click();
    await drawn();
    expect(asked("chart")).toMatchObject([
      { metrics: ["loss"], range: null, ranks: false, earlier: "", export: false },
    ]);
    expect(document.activeElement).toBe(find(panel, ".na-enlarged [role=slider]"));
    const key = new KeyboardEvent("keydown", { key: "Escape", bubbles: true, cancelable: true });
    find(panel, ".na-enlarged").dispatchEvent(key);
    expect(key.defaultPrevented).toBe(true); // otherwise, a dialog around it would close, too
    expect(panel.querySelector(".na-enlarged")).toBeNull();
    expect(document.activeElement).toBe(find(panel, ".na-enlarge"));
  });

  it("ask again when there are new values, but not before the kernel allows it", async () => {
    const { panel, model, asked } = await open({ loss: aMetric() });
    find(panel, ".na-enlarge").click();
    await drawn();
    model.receive(
      { replies: [{ id: asked("chart")[0]?.id ?? "", pause: 0, problem: "", tables: [] }] },
      new ArrayBuffer(0),
    );
    model.receive({ seq: 1, patch: { metrics: { loss: { now: "0.4" } } } });
    await drawn();
    expect(asked("chart")).toHaveLength(2);
    model.receive(
      { replies: [{ id: asked("chart")[1]?.id ?? "", pause: 60_000, problem: "the job is gone", tables: [] }] },
      new ArrayBuffer(0),
    );
    expect(find(panel, ".na-chart-status").textContent).toBe("the job is gone");
    model.receive({ seq: 2, patch: { metrics: { loss: { now: "0.3" } } } });
    await drawn();
    expect(asked("chart")).toHaveLength(2);
  });

  it("ask for each rank, for other metrics, and for an earlier job", async () => {
    const { panel, model, asked } = await open({ loss: aMetric(), val: aMetric() });
    find(panel, ".na-enlarge").click();
    await drawn();
    model.receive(
      { replies: [{ id: asked("earlier")[0]?.id ?? "", jobs: [{ id: "abc", label: "train(), yesterday" }] }] },
      new ArrayBuffer(0),
    );
    find(panel, "[aria-pressed][title^='A line for each rank']").click();
    const choose = (label: string, value: string) => {
      const select = find(panel, `select[aria-label^="${label}"]`) as HTMLSelectElement;
      select.value = value;
      select.dispatchEvent(new Event("change"));
    };
    choose("Add", "val");
    choose("Compare", "abc");
    expect(asked("chart").at(-1)).toMatchObject({ metrics: ["loss", "val"], ranks: true, earlier: "abc" });
    expect(texts(panel, ".na-keys .na-key")).toEqual(["loss", "val"]);
    find(panel, "[aria-label='Remove loss from the chart']").click();
    expect(asked("chart").at(-1)).toMatchObject({ metrics: ["val"] });
  });

  it("are chosen and ordered by the user, and the kernel draws no others", async () => {
    const { panel, model, asked } = await open({ loss: aMetric(), lr: aMetric(), val: aMetric() });
    expect(asked("charts")).toEqual([]);
    const chooser = find(panel, ".na-choose") as HTMLDetailsElement;
    chooser.open = true;
    chooser.dispatchEvent(new Event("toggle"));
    const box = find(panel, "[data-key='show lr']") as HTMLInputElement;
    box.checked = false;
    box.dispatchEvent(new Event("change"));
    await drawn();
    find(panel, "[aria-label='Move val up']").click();
    find(panel, "[aria-label='Move val up']").click();
    await drawn();
    expect(texts(panel, ".na-chart .na-key")).toEqual(["val", "loss"]);
    expect(asked("charts").at(-1)).toMatchObject({ metrics: ["val", "loss"] });
    model.receive({ seq: 1, patch: { metrics: { lr: null } } });
    await drawn();
    expect(texts(panel, ".na-chart .na-key")).toEqual(["val", "loss"]);
  });
});
