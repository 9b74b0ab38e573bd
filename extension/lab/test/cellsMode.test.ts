import type { ISessionContext } from "@jupyterlab/apputils";
import { Signal } from "@lumino/signaling";
import { expect, test } from "vitest";
import { CellsMode } from "../src/cellsMode";

interface Request {
  code: string;
  silent: boolean;
  store_history: boolean;
  user_expressions: Record<string, string>;
}

/** A kernel that answers as the test says. */
class Kernel {
  requests: Request[] = [];
  ranks = "0";
  error: { ename: string; evalue: string } | null = null;
  readonly info: Promise<{ language_info: { name: string } }>;

  constructor(language = "python") {
    this.info = Promise.resolve({ language_info: { name: language } });
  }

  requestExecute(request: Request) {
    this.requests.push(request);
    const isQuestion = request.code === "";
    const content = isQuestion
      ? { status: "ok", user_expressions: { ranks: { data: { "text/plain": this.ranks } } } }
      : this.error
        ? { status: "error", ...this.error }
        : { status: "ok", user_expressions: {} };
    const future = { onIOPub: (_: unknown): void => {}, done: Promise.resolve({ content }) };
    future.done = future.done.then((reply) => {
      const stream = { name: "stdout", text: "Each cell runs on 2 ranks\n" };
      if (!isQuestion) future.onIOPub({ header: { msg_type: "stream" }, content: stream });
      return reply;
    });
    return future;
  }
}

function session(kernel: Kernel | null) {
  const owner = {};
  const made = {
    session: { kernel },
    ready: Promise.resolve(),
    kernelChanged: new Signal<object, unknown>(owner),
    statusChanged: new Signal<object, string>(owner),
  };
  return { made, mode: new CellsMode(made as unknown as ISessionContext) };
}

/** Lets all promises settle. */
const settle = () => new Promise((resolve) => setTimeout(resolve, 0));

test("the kernel is asked without a trace, and what it answers is known", async () => {
  const kernel = new Kernel();
  const { mode } = session(kernel);
  await settle();
  expect(mode.ranks).toBe(0);
  kernel.ranks = "2";
  await mode.ask();
  expect(mode.ranks).toBe(2);
  expect(kernel.requests.every((each) => each.silent && !each.store_history && each.code === "")).toBe(true);
});

test("a kernel of another language isn't asked, nor one that isn't there", async () => {
  const kernel = new Kernel("julia");
  const other = session(kernel).mode;
  const none = session(null).mode;
  await settle();
  expect([other.ranks, none.ranks, kernel.requests]).toEqual([null, null, []]);
  await expect(none.change(2)).rejects.toThrow("no kernel");
});

test("the mode is changed by the magic", async () => {
  const kernel = new Kernel();
  const { mode } = session(kernel);
  await settle();
  const seen: boolean[] = [];
  mode.changed.connect(() => seen.push(mode.isChanging));
  kernel.ranks = "2";
  expect(await mode.change(2, true)).toEqual({ where: "Each cell runs on 2 ranks", notices: "" });
  await mode.change(3, true);
  await mode.change(3);
  await mode.change(0);
  const codes = kernel.requests.map((each) => each.code).filter(Boolean);
  expect(codes[0]).toContain("run_line_magic('accelerate', 'cells on -n 2')");
  expect(codes[1]).toContain("run_line_magic('accelerate', 'cells on -n 3 --keep')");
  expect(codes[2]).toContain("run_line_magic('accelerate', 'cells on -n 3')");
  expect(codes[3]).toContain("run_line_magic('accelerate', 'cells off')");
  expect(mode.ranks).toBe(2); // as the kernel says, whatever was asked for
  expect([seen[0], seen.at(-1)]).toEqual([true, false]);
});

test.each([
  ["ModuleNotFoundError", "No module named 'notebook_accel'", "The kernel's environment doesn't have notebook-accel"],
  ["LaunchError", "8 ranks have no room", "8 ranks have no room"],
])("what fails with %s is explained", async (ename, evalue, message) => {
  const kernel = new Kernel();
  const { mode } = session(kernel);
  kernel.error = { ename, evalue };
  await expect(mode.change(8)).rejects.toThrow(message);
  expect([mode.isChanging, mode.ranks]).toEqual([false, 0]);
});

test.each(["restarting", "dead"])("once the kernel is %s, cells run in the kernel", async (status) => {
  const kernel = new Kernel();
  kernel.ranks = "2";
  const { made, mode } = session(kernel);
  await settle();
  expect(mode.ranks).toBe(2);
  made.statusChanged.emit(status);
  expect(mode.ranks).toBe(0);
});

test("what another browser has changed is known once the user is back", async () => {
  const kernel = new Kernel();
  const { mode } = session(kernel);
  await settle();
  kernel.ranks = "2";
  window.dispatchEvent(new Event("focus"));
  window.dispatchEvent(new Event("focus"));
  await settle();
  expect([mode.ranks, kernel.requests.length]).toEqual([2, 2]);
  mode.dispose();
  window.dispatchEvent(new Event("focus"));
  await settle();
  expect(kernel.requests).toHaveLength(2);
});
