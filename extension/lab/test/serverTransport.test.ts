import { afterEach, beforeEach, expect, test, vi } from "vitest";

vi.mock("@jupyterlab/services", () => ({ ServerConnection: { NetworkError: class extends Error {} } }));

const { ServerTransport } = await import("../src/serverTransport");
const { ServerConnection } = await import("@jupyterlab/services");
type Update = Awaited<ReturnType<import("../src/serverTransport").Ask>>;

const NEWS: Update = { seq: 0, buffers: [], pause: 250, reading: false, resume: null, output: null };
const CLICK = { cmd: "stop", click: 1 };

/** A panel, and what it has asked for: the update that it has, and its messages. */
function open() {
  const asked: [number, object[]][] = [];
  const answers: (Update | Error)[] = [];
  const got: unknown[] = [];
  const page = { isVisible: true };
  const link = new ServerTransport(
    async (_panel, seq, messages) => {
      asked.push([seq, messages]);
      const answer = answers.shift() ?? NEWS;
      if (answer instanceof Error) throw answer;
      return answer;
    },
    {
      seq: () => (got.filter((each) => typeof each === "number").at(-1) as number | undefined) ?? -1,
      receive: (update) => got.push(update.reading ? "reading" : update.seq),
      fail: (error) => got.push(error.message),
      pace: (pause) => (page.isVisible ? pause : -1),
    },
  );
  return { link, asked, answers, got, page };
}

const pass = (time: number) => vi.advanceTimersByTimeAsync(time);

beforeEach(() => {
  vi.useFakeTimers();
});

afterEach(() => {
  vi.useRealTimers();
});

test("it asks as often as the server says, while somebody can see it", async () => {
  const { link, asked, answers, page } = open();
  answers.push({ ...NEWS, seq: 3 }, { ...NEWS, seq: 4, pause: 1000 });
  void link.refresh();
  await pass(250);
  expect(asked).toEqual([
    [-1, []],
    [3, []],
  ]);
  await pass(999);
  expect(asked).toHaveLength(2);
  page.isVisible = false;
  await pass(5000);
  expect(asked).toHaveLength(3); // whose answer came when nobody saw it
  link.dispose();
});

test("it asks no more once nothing changes, unless the panel has a request", async () => {
  const { link, asked, answers } = open();
  answers.push({ ...NEWS, pause: -1 }, { ...NEWS, pause: -1 });
  void link.refresh();
  await pass(60_000);
  expect(asked).toHaveLength(1);
  link.send(CLICK);
  link.send({ cmd: "stack" }); // with the next request: one is under way
  await pass(0);
  expect(asked.slice(1)).toEqual([
    [0, [CLICK]],
    [0, [{ cmd: "stack" }]],
  ]);
  link.dispose();
});

test("what has not arrived is sent again, and what was refused is not", async () => {
  const { link, asked, answers, got } = open();
  const Lost = ServerConnection.NetworkError as unknown as new (text: string) => Error;
  answers.push(new Lost("no network"), { ...NEWS, reading: true }, new Error("refused"));
  link.send(CLICK);
  await pass(10_000);
  expect(asked.slice(0, 4)).toEqual([
    [-1, [CLICK]],
    [-1, [CLICK]],
    [-1, [CLICK]],
    [-1, []],
  ]);
  expect(got.slice(0, 4)).toEqual(["no network", "reading", "refused", 0]);
  link.dispose();
});
