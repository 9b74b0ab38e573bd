import { render } from "lit-html";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { type JobActions, jobItem } from "../src/jobItem";
import type { JobListing, JobRow } from "../src/model";

const listJobs = vi.hoisted(() => vi.fn<(brief: boolean) => Promise<JobListing>>());
const anyRuns = vi.hoisted(() => vi.fn<() => Promise<boolean>>());
vi.mock("../src/server", () => ({ anyRuns, listJobs }));

const { endText, Jobs } = await import("../src/jobs");

const ROW: JobRow = {
  id: "0a1b2c",
  title: "train()",
  notes: "",
  pinned: false,
  status: "running",
  state: "running",
  seconds: 60,
  live: true,
  done: 570,
  summary: "4 ranks · 57% · 2:10 left",
  details: "2026-11-24 02:10 · 4 × GPU",
  note: "",
  stopping: 0,
  metrics: [
    {
      name: "loss",
      value: "0.5",
      lines: [
        [
          [0, 1000],
          [1000, 0],
        ],
        [[500, 500]],
      ],
    },
  ],
  devices: {},
  code: 'attach("0a1b2c")',
  checkpoints: "",
  resumable: false,
  notebook: "",
  cell: "",
  part: false,
};
const STATUS = { pause: 3000, brief: true };
const SIDEBAR = { pause: 1000, brief: false };
const DONE: JobRow = { ...ROW, status: "done", state: "done", live: false, done: 1000 };

beforeEach(() => {
  vi.useFakeTimers();
  listJobs.mockReset().mockResolvedValue({ jobs: [ROW], problem: "" });
  anyRuns.mockReset().mockResolvedValue(true);
});

afterEach(() => {
  vi.useRealTimers();
  vi.restoreAllMocks();
  setHidden(false);
});

function setHidden(hidden: boolean): void {
  Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
}

async function pass(milliseconds: number): Promise<number> {
  const before = listJobs.mock.calls.length;
  await vi.advanceTimersByTimeAsync(milliseconds);
  return listJobs.mock.calls.length - before;
}

test("jobs are asked for while someone looks, and only then", async () => {
  const jobs = new Jobs();
  expect(await pass(60_000)).toBe(0);
  jobs.watch("status", STATUS);
  await pass(100);
  expect(jobs.rows).toEqual([ROW]);
  expect(await pass(30_000)).toBe(10);
  expect(listJobs).toHaveBeenLastCalledWith(true);
  jobs.watch("sidebar", SIDEBAR);
  await pass(100);
  expect(await pass(30_000)).toBe(30);
  expect(listJobs).toHaveBeenLastCalledWith(false);
  setHidden(true);
  expect(await pass(60_000)).toBe(0);
  setHidden(false);
  jobs.unwatch("sidebar");
  await pass(3000);
  expect(await pass(30_000)).toBe(10);
  jobs.unwatch("status");
  expect(await pass(60_000)).toBe(0);
});

test("while no job runs, the status bar has no job read, and a command does", async () => {
  anyRuns.mockResolvedValue(false);
  listJobs.mockResolvedValue({ jobs: [DONE], problem: "" });
  const jobs = new Jobs();
  jobs.watch("status", STATUS);
  expect(await pass(60_000)).toBe(0);
  expect(anyRuns.mock.calls.length).toBeGreaterThan(15);
  await jobs.refresh();
  expect(jobs.rows).toEqual([DONE]);
  anyRuns.mockResolvedValue(true);
  listJobs.mockResolvedValue({ jobs: [ROW], problem: "" });
  await pass(3100);
  expect(jobs.running).toEqual(ROW);
  anyRuns.mockResolvedValue(false);
  listJobs.mockResolvedValue({ jobs: [DONE], problem: "" });
  await pass(3100);
  expect(jobs.rows).toEqual([DONE]); // how it has ended
  expect(await pass(60_000)).toBe(0);
});

test("a server that doesn't answer is asked less often, and the last list stays", async () => {
  vi.spyOn(Math, "random").mockReturnValue(0.5); // the pauses grow by a factor that Lumino draws
  const jobs = new Jobs();
  jobs.watch("sidebar", SIDEBAR);
  await pass(100);
  listJobs.mockRejectedValue(new Error("gone"));
  await pass(60_000);
  expect(await pass(60_000)).toBeLessThan(10);
  expect([jobs.rows, jobs.problem]).toEqual([[ROW], "gone"]);
});

test("the end of a job is told once, and not of a job that had ended before", async () => {
  const jobs = new Jobs();
  const ended: string[] = [];
  jobs.ended.connect((_, row) => ended.push(row.id));
  const before: JobRow = { ...DONE, id: "ffffff" };
  listJobs.mockResolvedValue({ jobs: [ROW, before], problem: "" });
  jobs.watch("sidebar", SIDEBAR);
  await pass(2000);
  expect(ended).toEqual([]);
  expect(jobs.running).toEqual(ROW);
  listJobs.mockResolvedValue({ jobs: [DONE, before], problem: "" });
  await pass(5000);
  expect(ended).toEqual([ROW.id]);
  expect(jobs.running).toBeUndefined();
});

interface Made {
  element: HTMLElement;
  update: (row: JobRow) => void;
}

function item(first: JobRow): { item: Made; calls: string[] } {
  const calls: string[] = [];
  const list = document.createElement("ul");
  let chosen = false;
  const actions: JobActions = {
    open: (each) => calls.push(`open ${each.id}`),
    stop: (each) => calls.push(`stop ${each.id}`),
    attach: (each) => calls.push(`attach ${each.code}`),
    resume: (each) => calls.push(`resume ${each.id}`),
    runAgain: (each) => calls.push(`run ${each.notebook} ${each.cell}`),
    edit: (each) => calls.push(`edit ${each.id}`),
    pin: (each) => calls.push(`pin ${each.id} ${each.pinned}`),
    remove: (each) => calls.push(`remove ${each.id}`),
    choose: (each, isChosen) => {
      chosen = isChosen;
      calls.push(`choose ${each.id} ${isChosen}`);
    },
  };
  const update = (row: JobRow) => void render(jobItem(row, chosen, actions), list);
  update(first);
  return { item: { element: list.firstElementChild as HTMLElement, update }, calls };
}

function buttons(made: Made): HTMLButtonElement[] {
  return [...made.element.querySelectorAll<HTMLButtonElement>(".na-lab-buttons button")];
}

test("a job shows its state, and what comes from a rank stays text", () => {
  const evil = '<img src=x onerror="alert(1)">';
  const { item: made } = item({ ...ROW, title: evil, note: evil, metrics: [{ name: evil, value: "1", lines: [] }] });
  expect(made.element.querySelector("img")).toBeNull();
  expect(made.element.querySelector(".na-lab-title")?.textContent).toBe(evil);
  made.update(ROW);
  expect(made.element.querySelector("[role=progressbar]")?.getAttribute("aria-valuenow")).toBe("57");
  expect(made.element.querySelector("path")?.getAttribute("d")).toBe("M2 2L118 22M60 12L60 12");
  expect(made.element.querySelector(".na-lab-metric")?.textContent).toBe("loss 0.5");
});

test("the end of a trial of a sweep is not told: its board tells it", async () => {
  const jobs = new Jobs();
  const ended: string[] = [];
  jobs.ended.connect((_, row) => ended.push(row.id));
  listJobs.mockResolvedValue({ jobs: [{ ...ROW, part: true }], problem: "" });
  jobs.watch("sidebar", SIDEBAR);
  await pass(2000);
  listJobs.mockResolvedValue({ jobs: [{ ...DONE, part: true }], problem: "" });
  await pass(5000);
  expect(jobs.running).toBeUndefined();
  expect(ended).toEqual([]);
});

test("a training that ended unfinished can be resumed", () => {
  const { item: made, calls } = item({ ...ROW, status: "failed", state: "failed", live: false, resumable: true });
  expect(buttons(made).map((each) => each.textContent)).toEqual(["Open", "Attach", "Resume", "Delete"]);
  buttons(made)[2]?.click();
  expect(calls).toEqual(["resume 0a1b2c"]);
});

test("a running job has Stop and then Kill, and one that has ended has Delete", () => {
  const { item: made, calls } = item(ROW);
  const [open, stop, attach] = buttons(made);
  expect(buttons(made).map((each) => each.textContent)).toEqual(["Open", "Stop", "Attach"]);
  open?.click();
  stop?.click();
  attach?.click();
  made.update({ ...ROW, stopping: 1 });
  expect(buttons(made)[1]).toBe(stop); // still the same element, with the focus
  expect(stop?.textContent).toBe("Kill");
  made.update(DONE);
  expect(buttons(made).map((each) => each.textContent)).toEqual(["Open", "Attach", "Delete"]);
  buttons(made)[2]?.click();
  expect(calls).toEqual(["open 0a1b2c", "stop 0a1b2c", `attach ${ROW.code}`, "remove 0a1b2c"]);
  made.update({ ...DONE, code: "", done: -1, metrics: [] });
  expect(buttons(made).map((each) => each.textContent)).toEqual(["Delete"]);
  expect(made.element.querySelector("[role=progressbar], svg")).toBeNull();
});

test("a job is pinned, and one that a notebook has launched runs again once it has ended", () => {
  const { item: made, calls } = item({ ...ROW, notebook: "a/b.ipynb", cell: "1c2b", notes: "two\nlines" });
  const pin = made.element.querySelector<HTMLButtonElement>(".na-lab-pin");
  expect(made.element.querySelector(".na-lab-notes")?.textContent).toBe("two\nlines");
  pin?.click();
  made.update({ ...DONE, notebook: "a/b.ipynb", cell: "1c2b", pinned: true });
  expect(pin?.getAttribute("aria-pressed")).toBe("true");
  expect(buttons(made).map((each) => each.textContent)).toEqual(["Open", "Attach", "Run Again", "Delete"]);
  buttons(made)[2]?.click();
  made.element.querySelector<HTMLButtonElement>(".na-lab-edit")?.click();
  expect(calls).toEqual(["pin 0a1b2c false", "run a/b.ipynb 1c2b", "edit 0a1b2c"]);
});

test("a job is chosen for a comparison, and no longer", () => {
  const { item: made, calls } = item(ROW);
  document.body.append(made.element); // elsewhere, a click changes nothing
  const box = made.element.querySelector("input") as HTMLInputElement;
  expect(box.getAttribute("aria-label")).toBe(`Compare ${ROW.title}, job ${ROW.id}`);
  box.click();
  made.update(DONE);
  expect(box.checked).toBe(true);
  box.click();
  expect(calls).toEqual([`choose ${ROW.id} true`, `choose ${DONE.id} false`]);
});

test("of a job that can't be read, only that it has ended is said", () => {
  const { item: made } = item({
    ...ROW,
    status: "ended with its kernel",
    state: "ended",
    live: false,
    code: "",
    note: "can't be read",
  });
  expect(made.element.querySelector(".na-lab-status")?.textContent).toBe("ended");
});

test("a message says how a job has ended", () => {
  const failed: JobRow = { ...ROW, title: "fail()", status: "failed", state: "failed", live: false };
  expect(endText({ ...failed, note: "rank 1: KeyError" })).toBe("fail() failed on rank 1: KeyError");
  expect(endText({ ...failed, note: "no rank has started" })).toBe("fail() failed: no rank has started");
  expect(endText({ ...failed, status: "done", state: "done" })).toBe("fail(): done");
});
