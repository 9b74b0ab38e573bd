import { describe, expect, it, vi } from "vitest";
import type { Model } from "../src/kernel";
import { NotebookOutput } from "../src/notebookOutput";

const VIEW = "application/vnd.jupyter.widget-view+json";

function aCell(id: string, ...panels: string[]) {
  const outputs = panels.map((panel) => ({ data: { [VIEW]: { model_id: panel } } as Record<string, unknown> }));
  const set: typeof outputs = [];
  return {
    id,
    outputs: {
      list: outputs,
      /** What was set, one after the other. */
      changes: set,
      get length() {
        return outputs.length;
      },
      get: (index: number) => outputs[index],
      set: (index: number, output: (typeof outputs)[0]) => {
        outputs[index] = output;
        set.push(output);
      },
      add: (output: (typeof outputs)[0]) => outputs.push(output),
    },
  };
}

/** Makes what is changed in a cell reach the same cell on the other pages, after a while. */
function share(cell: ReturnType<typeof aCell>, everywhere: ReturnType<typeof aCell>[]): void {
  const { set, add } = cell.outputs;
  const others = everywhere.filter((each) => each !== cell).map((each) => each.outputs.list);
  cell.outputs.set = (index, output) => {
    set(index, output);
    for (const list of others) setTimeout(() => list.splice(index, 1, output), 100);
  };
  cell.outputs.add = (output) => {
    for (const list of others) setTimeout(() => list.push(output), 100);
    return add(output);
  };
}

/** The output of a panel in a notebook with these cells. */
function anOutput(
  cells: object[],
  id: string,
  former: string[] = [],
  isReady: () => boolean = () => true,
  awareness?: { clientID: number; getStates(): Map<number, object> },
) {
  const model = { cells: { length: cells.length, get: (index: number) => cells[index] }, sharedModel: { awareness } };
  const fields: Record<string, unknown> = { place: { id, former, cell: "launch" } };
  const context = {
    model,
    get isReady() {
      return isReady();
    },
  };
  const widget_manager = { context };
  return new NotebookOutput({ get: (name: string) => fields[name], widget_manager } as unknown as Model);
}

describe("the output in the notebook", () => {
  it("shows the panel that was opened again in place of the one before it", async () => {
    const cell = aCell("launch", "another", "first");
    await anOutput([{ id: "text" }, cell], "second", ["first"]).takeOver();
    expect(cell.outputs.list.map((output) => (output.data[VIEW] as { model_id: string }).model_id)).toEqual([
      "another",
      "second",
    ]);
  });

  it("keeps the HTML of the panel before it, for a page that has neither", async () => {
    const cell = aCell("launch", "first");
    Object.assign(cell.outputs.list[0] as object, { metadata: { notebook_accel: {} } });
    Object.assign(cell.outputs.list[0]?.data as object, { "text/html": "<b>train()</b>", "text/plain": "train()" });
    await anOutput([cell], "second", ["first"]).takeOver();
    expect(cell.outputs.list[0]).toMatchObject({
      data: { [VIEW]: { model_id: "second" }, "text/html": "<b>train()</b>", "text/plain": "train()" },
      metadata: { notebook_accel: {} },
    });
  });

  it("gets a new renderer for the panel, since that of the former one may still wait for it", async () => {
    const cell = aCell("launch", "first");
    await anOutput([cell], "second", ["first"]).takeOver();
    expect(cell.outputs.changes.map((output) => VIEW in output.data)).toEqual([false, true]);
  });

  it("stays as it is if the panel was closed while the notebook was being loaded", async () => {
    const cell = aCell("launch", "first");
    let isReady = false;
    const output = anOutput([cell], "second", ["first"], () => isReady);
    vi.useFakeTimers();
    const done = output.takeOver();
    output.close();
    isReady = true;
    await vi.runAllTimersAsync();
    vi.useRealTimers();
    await done;
    expect(cell.outputs.changes).toEqual([]);
  });

  it("is added to the launch's cell if the page was saved without it, and only once", async () => {
    const [other, cell] = [aCell("other"), aCell("launch")];
    for (let time = 0; time < 2; time += 1) await anOutput([other, cell], "second", ["first"]).takeOver();
    expect(other.outputs.length).toBe(0);
    expect(cell.outputs.list.map((output) => output.data[VIEW])).toMatchObject([{ model_id: "second" }]);
  });

  it("stays as it is for a panel that is opened for the first time", async () => {
    const cell = aCell("launch");
    await anOutput([cell], "first").takeOver();
    expect(cell.outputs.length).toBe(0);
  });

  it("is replaced by the final HTML", async () => {
    const cell = aCell("launch", "first");
    await anOutput([cell], "second", ["first"]).store({ "text/html": "done" });
    expect(cell.outputs.list).toMatchObject([{ data: { "text/html": "done" } }]);
    expect(cell.outputs.list[0]?.data).not.toHaveProperty([VIEW]);
  });

  it("is followed by what was written since the page was reloaded, but only if the kernel could not show it", async () => {
    const written = [{ output_type: "stream", name: "stdout", text: "line\n" }];
    const [cell, replaced] = [aCell("launch", "first"), aCell("launch")];
    for (const each of [cell, replaced]) await anOutput([each], "first").store({ "text/html": "done" }, written);
    expect(cell.outputs.list).toMatchObject([{ data: { "text/html": "done" } }, ...written]);
    expect(replaced.outputs.length).toBe(0);
  });

  it("is replaced once if pages edit the notebook together, also without the page whose turn is first", async () => {
    const written = [{ output_type: "stream", name: "stdout", text: "line\n" }];
    const states = new Map([7, 3, 5].map((client) => [client, {}]));
    vi.useFakeTimers();
    for (const clients of [
      [7, 3, 5],
      [7, 5],
    ]) {
      const cells = clients.map(() => aCell("launch", "first"));
      for (const cell of cells) share(cell, cells);
      const done = clients.map((clientID, index) => {
        const awareness = { clientID, getStates: () => states };
        return anOutput([cells[index] as object], "second", ["first"], () => true, awareness).store(
          { "text/html": "done" },
          written,
        );
      });
      await vi.runAllTimersAsync();
      await Promise.all(done);
      for (const cell of cells)
        expect(cell.outputs.list).toMatchObject([{ data: { "text/html": "done" } }, ...written]);
    }
    vi.useRealTimers();
  });

  it("keeps what the kernel has already put in its place", async () => {
    const cell = aCell("launch");
    await anOutput([cell], "first").store({ "text/html": "done" });
    expect(cell.outputs.length).toBe(0);
  });
});
