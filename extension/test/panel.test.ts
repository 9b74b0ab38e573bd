import { beforeEach, describe, expect, it, vi } from "vitest";
import type { Store } from "../src/store";
import { aLink, aRank, aStore, drawn, find } from "./examples";

function show(store: Store): HTMLElement {
  const panel = aLink(store).open();
  panel.moveInto(document.body);
  return panel.element;
}

const texts = (root: ParentNode, selector: string) =>
  [...root.querySelectorAll(selector)].map((element) => element.textContent);

beforeEach(() => {
  document.body.replaceChildren();
});

describe("the panel", () => {
  it("has a row for each rank", () => {
    const panel = show(aStore(4));
    expect(texts(panel, ".na-row .na-rank")).toEqual(["0", "1", "2", "3"]);
    expect(texts(panel, ".na-row .na-percent")).toEqual(["25%", "25%", "25%", "25%"]);
    expect(find(panel, ".na-row .na-memory").textContent).toBe("GPU 87%, 2.0 GB");
    const tooltip = "512 MB, GPU 2.0 GB\nCPU: 98% of a core\ntemperature: 66 °C";
    expect(find(panel, ".na-row .na-memory").title).toBe(tooltip);
  });

  it("warns of a device below its rank", async () => {
    const store = aStore(2);
    const panel = show(store);
    const warning = find(panel, '.na-row[data-rank="1"] .na-warning');
    expect(warning.hidden).toBe(true);
    store.apply({ seq: 1, patch: { ranks: { "1": { warning: "<b>The GPU</b> is too hot." } } } });
    await drawn();
    expect([warning.hidden, warning.textContent]).toEqual([false, "<b>The GPU</b> is too hot."]);
  });

  it("says of each bar what it is and how far", () => {
    const bar = find(show(aStore(2)), '.na-row[data-rank="1"] [role=progressbar]');
    expect(bar.getAttribute("aria-label")).toBe("Rank 1");
    expect(bar.getAttribute("aria-valuenow")).toBe("25");
    expect(bar.getAttribute("aria-valuetext")).toBe("epoch 1/4, 30 s left");
  });

  it("gives a bar whose end is unknown no value", async () => {
    const store = aStore(1);
    const panel = show(store);
    store.apply({ seq: 1, patch: { ranks: { "0": { done: -1 } } } });
    await drawn();
    expect(find(panel, ".na-row .na-bar").hasAttribute("aria-valuenow")).toBe(false);
    expect(find(panel, ".na-row .na-percent").textContent).toBe("");
  });

  it("updates in place: what is unfolded and what has the focus stay", async () => {
    const store = aStore(3);
    const panel = show(store);
    const row = find(panel, '.na-row[data-rank="1"]');
    const toggle = find(row, ".na-toggle");
    toggle.focus();
    toggle.click();
    await drawn();
    const details = find(row, ".na-details");
    store.apply({ seq: 1, patch: { ranks: { "1": { done: 500, lines: { "7": null, "8": "another" } } } } });
    await drawn();
    expect(find(panel, '.na-row[data-rank="1"]')).toBe(row);
    expect(find(row, ".na-details")).toBe(details);
    expect(find(row, ".na-lines").textContent).toBe("another");
    expect(document.activeElement).toBe(toggle);
    expect(panel.dataset.seq).toBe("1");
  });

  it("unfolds a row to its bars, in their order, and folds it again", async () => {
    const store = aStore(1);
    const bar = aRank().bars["0"];
    store.apply({
      seq: 1,
      patch: { ranks: { "0": { bars: { "10": { ...bar, description: "inner", depth: 1 } } } } },
    });
    const panel = show(store);
    const toggle = find(panel, ".na-toggle");
    expect(toggle.getAttribute("aria-expanded")).toBe("false");
    toggle.click();
    await drawn();
    expect(texts(panel, ".na-subname")).toEqual(["epoch", "inner"]);
    expect(document.getElementById(toggle.getAttribute("aria-controls") ?? "")).toBe(find(panel, ".na-details"));
    store.apply({ seq: 2, patch: { ranks: { "0": { bars: { "10": null } } } } });
    await drawn();
    expect(texts(panel, ".na-subname")).toEqual(["epoch"]);
    toggle.click();
    await drawn();
    expect(panel.querySelector(".na-details")).toBeNull();
  });

  it("unfolds to the stack of a rank, as long as there is one", async () => {
    const store = aStore(2);
    const panel = show(store);
    find(panel, ".na-toggle").click();
    await drawn();
    expect(find(panel, ".na-stack").hidden).toBe(true);
    store.apply({ seq: 1, patch: { ranks: { "0": { stack: "In[3] line 4 in train: <b>()" } } } });
    await drawn();
    expect(find(panel, ".na-stack").textContent).toBe("In[3] line 4 in train: <b>()");
    expect(find(panel, ".na-stack").hidden).toBe(false);
    store.apply({ seq: 2, patch: { ranks: { "0": { stack: "" } } } });
    await drawn();
    expect(find(panel, ".na-stack").hidden).toBe(true);
  });

  it("shows the rank that failed first, with its error, and says so", async () => {
    const store = aStore(3);
    const panel = show(store);
    const failed = { phase: "failed", error: "ValueError: no" };
    store.apply({ seq: 1, patch: { head: { failed: [2] }, ranks: { "2": failed } } });
    await drawn();
    expect(texts(panel, ".na-row .na-rank")).toEqual(["2", "0", "1"]);
    expect(find(panel, '.na-row[data-phase="failed"] .na-error').textContent).toBe("ValueError: no");
    expect(find(panel, "[role=status]").textContent).toBe("Rank 2 failed: ValueError: no");
  });

  it("keeps its keys from the notebook around it", () => {
    const panel = show(aStore(1));
    const heard: string[] = [];
    document.body.addEventListener("keydown", (event) => heard.push(event.key));
    for (const key of ["Enter", " ", "s"]) {
      find(panel, ".na-stop").dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
    }
    expect(heard).toEqual(["s"]);
  });

  it("shows words of the user's as words", () => {
    const store = aStore(1, { name: "<img src=x>()" });
    store.apply({ seq: 1, patch: { ranks: { "0": { text: "<b>bold</b>", lines: { "7": "<script>" } } } } });
    const panel = show(store);
    expect(panel.querySelector("img, b, script")).toBeNull();
    expect(find(panel, ".na-text").textContent).toBe("<b>bold</b>");
  });

  it("is one line as long as there is nothing to tell", () => {
    const panel = show(aStore(4, { brief: true }));
    expect(panel.querySelector(".na-row")).toBeNull();
  });

  it("tells the choices that were made for the user, also on one line", () => {
    expect(find(show(aStore(2, { brief: true, choices: "no GPU" })), ".na-choices").textContent).toBe("no GPU");
  });

  it("says how the whole job is in one line", () => {
    const panel = show(aStore(2, { state: "stalled", time_left: "", summary: "slowest: rank 1, 20%" }));
    expect(texts(panel, ".na-top > *:not(.na-times)")).toEqual(["train()", "stalled", "25%", "epoch 1/4", "Stop"]);
    expect(find(panel, ".na-summary").textContent).toBe("slowest: rank 1, 20%");
    expect(panel.dataset.state).toBe("stalled");
  });

  it("has advice beside what is wrong, which the user can close", async () => {
    const panel = show(aStore(2, { note: "No progress", advice: "Use workers." }));
    expect([find(panel, ".na-note").textContent, find(panel, ".na-advice span").textContent]).toEqual([
      "No progress",
      "Use workers.",
    ]);
    find(panel, ".na-advice button").click();
    await drawn();
    expect(panel.querySelector(".na-advice")).toBeNull();
  });

  it("has what the user changed, and what is known, behind tabs", async () => {
    const panel = show(aStore(2, { changes: ["lr=0.1 after step 3"] }));
    const tabs = [...panel.querySelectorAll<HTMLElement>("[role=tab]")];
    const seen = () =>
      [...panel.querySelectorAll<HTMLElement>("[role=tabpanel]")].map((each) => !each.hidden).indexOf(true);
    expect([tabs.map((tab) => tab.textContent), seen()]).toEqual([
      ["Ranks", "Logs", "Profile", "Events (1)", "About"],
      0,
    ]);
    tabs[0]?.focus();
    for (const key of ["ArrowRight", "ArrowRight", "ArrowRight"]) {
      document.activeElement?.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
    }
    expect([document.activeElement, seen()]).toEqual([tabs[3], 3]);
    expect(find(panel, ".na-events").textContent).toBe("lr=0.1 after step 3");
    tabs[4]?.click();
    expect(find(panel, ".na-about-fact").textContent).toBe("a1b2c3");
  });

  it("marks a rank that is behind in words", async () => {
    const store = aStore(2);
    const panel = show(store);
    store.apply({ seq: 1, patch: { ranks: { "1": { mark: "behind" } } } });
    await drawn();
    const marks = [...panel.querySelectorAll<HTMLElement>(".na-mark")].map((mark) => mark.hidden);
    expect(marks).toEqual([true, false]);
    expect(find(panel, '.na-row[data-rank="1"] .na-mark').textContent).toBe("behind");
  });

  it("tells a note once to a screen reader although its words change", async () => {
    const store = aStore(1, { note: "No progress for 60 s" });
    const panel = show(store);
    store.apply({ seq: 1, patch: { head: { note: "No progress for 61 s" } } });
    await drawn();
    expect(find(panel, ".na-note").textContent).toBe("No progress for 61 s");
    expect(find(panel, "[role=status]").textContent).toBe("No progress for 60 s");
  });

  it("draws nothing while it is out of the page, and all of it once it is back", async () => {
    const store = aStore(1);
    const panel = aLink(store).open();
    store.apply({ seq: 1, patch: { head: { elapsed: "7 s elapsed" } } });
    await drawn();
    expect(panel.element.dataset.seq).toBe("0");
    panel.moveInto(document.body);
    await drawn();
    expect(find(panel.element, ".na-elapsed").textContent).toBe("7 s elapsed");
  });
});

describe("the button", () => {
  it("says what it does, and can be clicked twice", async () => {
    const panel = show(aStore(1));
    const button = find(panel, "button.na-stop") as HTMLButtonElement;
    const seen = [[button.textContent, button.dataset.state, button.disabled]];
    for (let click = 0; click < 2; click++) {
      button.click();
      await drawn();
      seen.push([button.textContent, button.dataset.state, button.disabled]);
    }
    expect(seen).toEqual([
      ["Stop", "stop", false],
      ["Stopping…", "stopping", false],
      ["Killing…", "killing", true],
    ]);
  });

  it("is over with the job", async () => {
    const store = aStore(1);
    const panel = show(store);
    store.apply({ seq: 1, patch: { head: { status: "done" } } });
    await drawn();
    expect(find(panel, "button.na-stop").textContent).toBe("Stopped");
  });
});

describe("several machines", () => {
  const order = (panel: HTMLElement, of: string) =>
    [...panel.querySelectorAll<HTMLElement>(`.na-machine, ${of}`)].map((each) => each.dataset.rank ?? each.textContent);
  const told = (size: number) =>
    Object.fromEntries([...Array(size).keys()].map((rank) => [rank, { host: rank < size / 2 ? "ada" : "bob" }]));

  it("head the ranks that live on them, those that failed above all", async () => {
    const store = aStore(4);
    const panel = show(store);
    store.apply({ seq: 1, patch: { ranks: told(4) } });
    await drawn();
    expect(order(panel, ".na-row")).toEqual(["ada", "0", "1", "bob", "2", "3"]);
    store.apply({ seq: 2, patch: { head: { failed: [3] }, ranks: { "3": { phase: "failed" } } } });
    await drawn();
    expect(order(panel, ".na-row")).toEqual(["bob", "3", "ada", "0", "1", "bob", "2"]);
  });

  it("head the cells of a grid, which arrow keys pass over", async () => {
    const store = aStore(20);
    const panel = show(store);
    store.apply({ seq: 1, patch: { ranks: told(20) } });
    await drawn();
    const ranks = [...Array(20).keys()].map(String);
    expect(order(panel, ".na-cell")).toEqual(["ada", ...ranks.slice(0, 10), "bob", ...ranks.slice(10)]);
    const ninth = find(panel, '.na-cell[data-rank="9"]');
    ninth.focus();
    ninth.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight", bubbles: true }));
    expect((document.activeElement as HTMLElement).dataset.rank).toBe("10");
  });
});

describe("the grid", () => {
  it("takes the place of rows where ranks are many, and still unfolds", async () => {
    const panel = show(aStore(64));
    expect(panel.dataset.layout).toBe("grid");
    expect(panel.querySelectorAll(".na-cell")).toHaveLength(64);
    expect(panel.querySelector(".na-row")).toBeNull();
    const cell = find(panel, '.na-cell[data-rank="40"]');
    cell.click();
    await drawn();
    expect(cell.getAttribute("aria-expanded")).toBe("true");
    expect(find(panel, '.na-row[data-rank="40"] .na-lines').textContent).toBe("the last line");
    cell.click();
    await drawn();
    expect(panel.querySelector(".na-row")).toBeNull();
  });

  it("is drawn over several frames where all of it changes", async () => {
    const store = aStore(64);
    const panel = show(store);
    await vi.waitFor(() => expect(panel.dataset.seq).toBe("0"));
    const ranks = Object.fromEntries([...Array(64).keys()].map((rank) => [rank, { done: 990 }]));
    store.apply({ seq: 1, patch: { ranks } });
    const changed = () => texts(panel, ".na-cell-amount").filter((text) => text === "99%").length;
    const seen: number[] = [];
    while (panel.dataset.seq !== "1") {
      await new Promise(requestAnimationFrame);
      seen.push(changed());
    }
    expect(seen).toEqual([16, 32, 48, 64]);
  });

  it("shows of those that failed the first few as rows", async () => {
    const store = aStore(64);
    const panel = show(store);
    const failed = Object.fromEntries([9, 3, 4, 5, 6].map((rank) => [rank, { phase: "failed", error: "no" }]));
    store.apply({ seq: 1, patch: { head: { failed: [9, 3, 4, 5, 6] }, ranks: failed } });
    await vi.waitFor(() => expect(panel.dataset.seq).toBe("1"), { timeout: 4000 });
    expect(texts(panel, ".na-row .na-rank")).toEqual(["9", "3", "4", "5"]);
    expect(find(panel, '.na-cell[data-rank="6"]').textContent).toBe("6failed");
  });

  it("is one stop of Tab, with arrows to go on from there", () => {
    const panel = show(aStore(20));
    const cells = [...panel.querySelectorAll<HTMLElement>(".na-cell")];
    const reachable = () => cells.filter((cell) => cell.tabIndex === 0).map((cell) => cell.dataset.rank);
    expect(reachable()).toEqual(["0"]);
    cells[0]?.focus();
    const press = (key: string) =>
      document.activeElement?.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
    press("ArrowRight");
    expect(document.activeElement).toBe(cells[1]);
    press("End");
    expect(document.activeElement).toBe(cells[19]);
    press("ArrowRight");
    expect(reachable()).toEqual(["19"]);
  });

  it("says of each cell how that rank does", async () => {
    const store = aStore(20);
    const panel = show(store);
    store.apply({ seq: 1, patch: { ranks: { "3": { mark: "behind", done: 40 }, "4": { phase: "waiting" } } } });
    await drawn();
    expect(find(panel, '.na-cell[data-rank="3"]').getAttribute("aria-label")).toBe("Rank 3: running, 4%, behind");
    expect(find(panel, '.na-cell[data-rank="4"]').textContent).toBe("4waiting");
  });
});
