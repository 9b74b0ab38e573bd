import type { IRenderMimeRegistry } from "@jupyterlab/rendermime";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { aState } from "../../test/examples";

class NetworkError extends Error {}
vi.mock("@jupyterlab/services", () => ({ ServerConnection: { NetworkError: class extends Error {} } }));
vi.mock("@lumino/widgets", () => ({
  Widget: class {
    node = document.createElement("div");
    isAttached = true;
    isDisposed = false;
    addClass() {}
    onAfterAttach() {}
    dispose() {
      this.isDisposed = true;
    }
  },
}));
const asked: object[][] = [];
const answers: (object | Error)[] = [];
vi.mock("../src/server", () => ({
  updatePanel: async (_job: string, _panel: string, _seq: number, messages: object[]) => {
    asked.push(messages);
    const answer = answers.shift() ?? NEWS;
    if (answer instanceof Error) throw answer;
    return answer;
  },
  isUnreachable: (error: Error) => error instanceof NetworkError,
}));

const { JobOutput, MIME } = await import("../src/jobOutput");

const JOB = "0123456789ab";
const NEWS = { buffers: [], pause: -1, reading: false, resume: null, output: null };
const ended = () => {
  const state = aState(2);
  return { ...state, head: { ...state.head, status: "done" as const } };
};
const attach = (output: object) => (output as { onAfterAttach(message: object): void }).onAfterAttach({});
const pass = (time: number) => vi.advanceTimersByTimeAsync(time);

/** An output. */
function open(state?: object) {
  const model = {
    trusted: true,
    metadata: {},
    data: { [MIME]: { job: JOB, ...(state && { state }) }, "text/html": "<b>saved</b>" } as Record<string, unknown>,
    setData: ({ data }: { data?: object }) => Object.assign(model, { data }),
  };
  const createRenderer = () => {
    const node = document.createElement("p");
    return {
      node,
      dispose: () => undefined,
      renderModel: async ({ data }: typeof model) => {
        node.innerHTML = String(data["text/html"]);
      },
    };
  };
  const spot = () => ({ notebook: "a.ipynb", cell: "1c2b" });
  const output = new JobOutput({ createRenderer } as unknown as IRenderMimeRegistry, spot);
  document.body.append(output.node);
  void output.renderModel(model as never);
  return {
    output,
    model,
    text: () => output.node.textContent,
    panel: () => output.node.querySelector(".na-panel"),
  };
}

beforeEach(() => {
  vi.useFakeTimers();
  asked.length = answers.length = 0;
  vi.stubGlobal(
    "IntersectionObserver",
    class {
      constructor(readonly seen: (entries: object[]) => void) {}
      observe() {
        this.seen([{ isIntersecting: true }]);
      }
      disconnect() {}
    },
  );
});

afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

test("a job that has begun is drawn at once, and says where once the server has it", async () => {
  answers.push(new Error("there is no job yet"), { ...NEWS, seq: 0, state: aState(2) });
  const { panel, text } = open(aState(2));
  expect(panel()).not.toBeNull();
  await pass(150);
  expect(text()).not.toContain("no job");
  await pass(0);
  expect(asked.flat()).toContainEqual({ cmd: "drawn", notebook: "a.ipynb", cell: "1c2b" });
});

test("what has come while the output was not in the page is drawn once it is there", async () => {
  answers.push({ ...NEWS, seq: 0, state: ended() });
  const { output, panel } = open(aState(2));
  output.node.remove();
  await pass(100);
  expect(panel()?.getAttribute("data-status")).toBe("running");
  document.body.append(output.node);
  attach(output);
  await pass(100);
  expect(panel()?.getAttribute("data-status")).toBe("done");
});

test("what was saved stands there until the server has read a job that has ended", async () => {
  answers.push({ ...NEWS, seq: -1, reading: true, pause: 10 }, { ...NEWS, seq: 0, state: ended() });
  const { panel, text } = open();
  await pass(0);
  expect([panel(), text()]).toEqual([null, "saved"]);
  await pass(20);
  expect(panel()).not.toBeNull();
  expect(text()).not.toContain("saved");
  expect(asked.flat()).toEqual([]); // nothing has to be stored
});

test("a job that the server doesn't have is shown as it was saved", async () => {
  answers.push(new Error("there is no job"));
  const { panel, text } = open();
  await pass(5000);
  expect([panel(), text(), asked.length]).toEqual([null, "saved", 1]);
});

test("a page that sees the job end stores what stays, unless the kernel has", async () => {
  answers.push({ ...NEWS, seq: 0, state: ended() }, { ...NEWS, seq: 0, output: { "text/html": "<b>done</b>" } });
  const { model } = open(aState(2));
  await pass(100);
  expect(asked.flat()).toEqual([{ cmd: "drawn", notebook: "a.ipynb", cell: "1c2b" }, { cmd: "output" }]);
  expect(model.data).toEqual({ [MIME]: { job: JOB }, "text/html": "<b>done</b>" });
});

test("a flame graph is shown in its tab, and stays in the notebook", async () => {
  answers.push({ ...NEWS, seq: 0, state: aState(2), results: ["<i>flames</i>"] });
  const { output, model } = open(aState(2));
  await pass(100);
  const frames = () => [...output.node.querySelectorAll("iframe")].map((each) => each.srcdoc);
  expect(frames()).toEqual([expect.stringContaining("<i>flames</i>")]);
  expect(output.node.querySelector("[aria-selected=true]")?.textContent).toBe("Profile (1)");
  expect(model.data[MIME]).toMatchObject({ results: ["<i>flames</i>"] });
  expect(model.data["text/html"]).toBe("<b>saved</b>");
  model.setData({ data: { [MIME]: { job: JOB }, "text/html": "<b>done</b>" } }); // by the kernel, at the end
  await output.renderModel(model as never);
  expect(frames()).toHaveLength(1);
  expect(model.data).toEqual({
    [MIME]: { job: JOB, results: ["<i>flames</i>"] },
    "text/html": "<b>done</b>\n<i>flames</i>",
  });
});

test("a job whose kernel is gone can be attached to, and resumed", async () => {
  const state = aState(2);
  const head = { ...state.head, status: "ended with its kernel" as const };
  answers.push({ ...NEWS, seq: 0, state: { ...state, head }, resume: "Resume train()" });
  const { output } = open(aState(2));
  await pass(100);
  const buttons = [...output.node.querySelectorAll<HTMLElement>(".na-lab-command")];
  expect(buttons.map((each) => each.getAttribute("aria-label"))).toEqual(["Resume train()", "Attach to train()"]);
});
