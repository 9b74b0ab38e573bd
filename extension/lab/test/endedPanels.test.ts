import type { NotebookPanel } from "@jupyterlab/notebook";
import { expect, test, vi } from "vitest";
import { replaceEndedPanels } from "../src/openedPanels";

const VIEW = "application/vnd.jupyter.widget-view+json";
const [LOST, KNOWN] = ["a".repeat(32), "b".repeat(32)];

/** A notebook with an output of each panel, whose kernel gives these answers, one after the other. */
function opened(answers: object[] | undefined, mark: object = { notebook_accel: {} }, sharedModel: object = {}) {
  const made = [LOST, KNOWN].map((id) => ({
    data: { [VIEW]: { model_id: id }, "text/html": "<b>train()</b>", "text/plain": "train()" } as object,
    metadata: mark,
  }));
  const outputs = {
    length: made.length,
    get: (index: number) => made[index],
    set: (index: number, output: { data: object; metadata: object }) => {
      made[index] = output;
    },
  };
  const kernel = {
    info: Promise.resolve({ language_info: { name: "python" } }),
    requestExecute: () => ({ done: Promise.resolve({ content: answers?.shift() }) }),
  };
  const sessionContext = { ready: Promise.resolve(), session: answers && { kernel } };
  const content = { model: { cells: [{}, { outputs }] } };
  const context = { ready: Promise.resolve(), model: { sharedModel } };
  const panel = { context, sessionContext, content, isDisposed: false };
  const shown = () => made.map(({ data }) => Object.keys(data));
  return { panel: panel as unknown as NotebookPanel, shown, outputs };
}

const PANEL = [VIEW, "text/html", "text/plain"];
const HTML = ["text/html", "text/plain"];
const answer = (text: string) => ({ status: "ok", user_expressions: { panels: { data: { "text/plain": text } } } });

test.each([
  ["has one of them", [answer(`['${KNOWN}']`)], [HTML, PANEL]],
  ["has none of them", [answer("[]")], [HTML, HTML]],
  ["isn't there", undefined, [HTML, HTML]],
  ["answers only after a cell that has failed", [{ status: "aborted" }, answer(`['${KNOWN}']`)], [HTML, PANEL]],
  ["can't tell", [{ status: "ok", user_expressions: { panels: { status: "error" } } }], [PANEL, PANEL]],
])("panels are HTML if the kernel %s", async (_, answers, expected) => {
  const { panel, shown } = opened(answers);
  await replaceEndedPanels(panel);
  expect(shown()).toEqual(expected);
});

test("widgets of others stay as they are", async () => {
  const { panel, shown } = opened(undefined, {});
  await replaceEndedPanels(panel);
  expect(shown()).toEqual([PANEL, PANEL]);
});

test("what another page has put in the place of a lost panel stays", async () => {
  const awareness = { clientID: 2, getStates: () => new Map([1, 2].map((client) => [client, {}])) };
  const { panel, shown, outputs } = opened([answer("[]")], { notebook_accel: {} }, { awareness });
  vi.useFakeTimers();
  const done = replaceEndedPanels(panel);
  await vi.advanceTimersByTimeAsync(100);
  outputs.set(0, { data: { "text/plain": "by the other page" }, metadata: {} });
  await vi.runAllTimersAsync();
  vi.useRealTimers();
  await done;
  expect(shown()).toEqual([["text/plain"], HTML]);
});
