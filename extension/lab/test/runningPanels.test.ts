import type { NotebookPanel } from "@jupyterlab/notebook";
import { Signal } from "@lumino/signaling";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { requestRunningPanels } from "../src/openedPanels";

beforeEach(() => {
  vi.useFakeTimers();
});

afterEach(() => {
  vi.useRealTimers();
});

/** A notebook whose kernel is connecting, and the contents of what it is sent. */
function opened(status: string, html = "") {
  const owner = {};
  const sent: unknown[] = [];
  const kernel = {
    status,
    connectionStatus: "connecting",
    isDisposed: false,
    sendControlMessage: ({ content }: { content: unknown }) => sent.push(content),
  };
  const connectionStatusChanged = new Signal<object, string>(owner);
  const sessionContext = {
    session: { kernel },
    kernelChanged: new Signal<object, unknown>(owner),
    connectionStatusChanged,
  };
  const node = document.createElement("div");
  node.innerHTML = html;
  const panel = { context: { ready: Promise.resolve() }, sessionContext, node, isDisposed: false };
  const connect = () => {
    kernel.connectionStatus = "connected";
    connectionStatusChanged.emit("connected");
  };
  return { panel: panel as unknown as NotebookPanel, sent, connect };
}

test("a kernel that is busy is asked for its panels, once it is connected", async () => {
  const { panel, sent, connect } = opened("unknown");
  const done = requestRunningPanels(panel);
  await vi.advanceTimersByTimeAsync(5000);
  expect(sent).toEqual([]);
  connect();
  await vi.advanceTimersByTimeAsync(5000);
  await done;
  expect(sent).toEqual([{ target_name: "notebook-accel", notebook_accel: { panel: "*", content: { cmd: "opened" } } }]);
});

test.each([
  ["idle", ""],
  ["busy", '<div class="na-panel"></div>'],
])("a kernel that is %s, beside %j, is asked for nothing", async (status, html) => {
  const { panel, sent, connect } = opened(status, html);
  connect();
  const done = requestRunningPanels(panel);
  await vi.advanceTimersByTimeAsync(5000);
  await done;
  expect(sent).toEqual([]);
});
