/**
 * Written by scripts/generate from notebook_accel/jupyter/model.py.
 */

import type { PanelUpdate } from "../../src/model";

/** The status of a job: the value of a `launch.job.job_state.Status`. */
export const STATUSES = [
  "starting",
  "running",
  "done",
  "failed",
  "cancelled",
  "interrupted",
  "ended with its kernel",
  "ended with its command",
  "ended with its process",
] as const;
export type Status = (typeof STATUSES)[number];

/** The fraction that is done, in thousandths; -1 if it is unknown. */
export type Done = number;

/** `[x, y]` of a chart, in thousandths of its width and height; 0 is the bottom. */
export type Point = [number, number];

/** The main metric of a job. */
export interface Metric {
  name: string;
  /** The last value; empty if there is none that can be drawn. */
  value: string;
  /** The mean of the ranks over the run; a new line begins after values that are not finite. */
  lines: Point[][];
}

/** A job. */
export interface JobRow {
  id: string;
  title: string;
  notes: string;
  /** Whether the user wants it first in the list. */
  pinned: boolean;
  status: Status;
  /** The same in a word for the user, such as `stalled` or `paused` while it runs. */
  state: string;
  /** Whether it may still run. */
  live: boolean;
  /** How long it has run. */
  seconds: number;
  done: Done;
  /** How it is getting on, in a line: `4 ranks · 57% · 2:10 left`. */
  summary: string;
  /** When it began, and on which hardware. */
  details: string;
  /** Why it failed, stalled, or cannot be read; empty if there is nothing to say. */
  note: string;
  /** How often it was asked to stop. The second request kills its ranks. */
  stopping: number;
  /** The main metric; empty if nothing was reported. */
  metrics: Metric[];
  /** The ranks on each device while the job runs, by the ID of the device: `train(): ranks 0, 2`. */
  devices: Record<string, string>;
  /** The code of a cell that shows the job; empty if the job can't be read. */
  code: string;
  /** The folder that it saves checkpoints to; empty if it can't be resumed in another kernel. */
  checkpoints: string;
  /** Whether its training ended unfinished, and no later job with its checkpoints runs or has finished it. */
  resumable: boolean;
  /** The path in its Jupyter server of the notebook whose cell launched it; empty if that isn't known. */
  notebook: string;
  /** The ID of this cell. */
  cell: string;
  /** Whether it is one of the trials of a sweep, whose board tells how they end. */
  part: boolean;
}

/** The user's last jobs. */
export interface JobListing {
  /** The newest first. */
  jobs: JobRow[];
  /** Why the jobs cannot be listed; empty if they can. */
  problem: string;
}

/** What is known of a run: a cell of a table. */
export interface RunFact {
  name: string;
  text: string;
  /** By which rows are sorted; `None` if that is the text. */
  order: number | null;
}

/** A metric of one job, over the run. */
export interface Curve {
  /** Whether `x` are steps; otherwise, the reports of each rank are counted. */
  by_step: boolean;
  /** The steps, thinned; the first one of those that share a point. */
  x: number[];
  /** The last one of them; empty if none share a point. */
  last: number[];
  /** The mean of the ranks at each step; `None` if no value is finite. */
  mean: (number | null)[];
}

/** One job of a comparison. */
export interface Run {
  id: string;
  /** What the job is called, and if others are called the same, what tells them apart. */
  label: string;
  /** Its metrics, by name: the one that is drawn in detail, and the first ones. */
  curves: Record<string, Curve>;
  /** Its state, the arguments that differ between the jobs, its values, and the rest, in the order of the columns. */
  facts: RunFact[];
  /** Why the values are missing; empty if they aren't. */
  problem: string;
}

/** The metrics of several jobs. */
export interface Comparison {
  /** The one that is drawn in detail. */
  metric: string;
  /** All metrics that any of the jobs has reported. */
  names: string[];
  /** In the order in which they were asked for. */
  runs: Run[];
  /** Whether everything was read; otherwise, the next request has more. */
  complete: boolean;
}

/** `[x, y]` of a chart, in thousandths of its width, the last five minutes, and of its height; 0 is the bottom. */
export type Moment = [number, number];

/** Something that is measured again and again. */
export interface Gauge {
  name: string;
  /** The last value, and the most that is possible. */
  value: string;
  /** The last five minutes; a new line begins after a pause. */
  lines: Moment[][];
}

/** A GPU, or the machine itself. */
export interface Device {
  /** As in `JobRow.devices`: the UUID of a GPU, or `cpu` for the machine. */
  id: string;
  title: string;
  gauges: Gauge[];
  /** What is wrong with it; empty if nothing is. */
  warning: string;
}

/** The devices of the machine that the Jupyter server runs on. */
export interface DeviceListing {
  /** The machine, then its GPUs in the driver's order. */
  devices: Device[];
  /** Why GPUs can't be read; empty if they can, and without GPUs. */
  problem: string;
}

/** An output of a notebook that shows a job. */
export interface NotedOutput {
  job: string;
  /** The ID of its cell. */
  cell: string;
  /** When it was drawn first, in seconds since the epoch. */
  at: number;
}

/** What a page gets when it asks what is new. */
export interface ServedUpdate extends PanelUpdate {
  /** What follows each reply, in base64. */
  buffers: string[];
  /** Milliseconds until the page asks again; -1 if nothing changes from now on, unless the page has a request. */
  pause: number;
  /** Whether the journal is still being read, so that there is no state yet. */
  reading: boolean;
  /** What a button says that continues the training; empty if that can't be done, `None` while the job runs. */
  resume: string | null;
  /** What stays in the notebook, by MIME type, if the page has asked for it. */
  output: Record<string, string> | null;
}
