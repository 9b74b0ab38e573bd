/**
 * Written by scripts/generate from notebook_accel/notebook/views/panel_model.py.
 */

/** Where a rank is in its life: the value of an `events.Phase`. */
export const PHASES = ["starting", "idle", "loading", "running", "waiting", "done", "failed", "stopped"] as const;
export type Phase = (typeof PHASES)[number];

/** What has become of a job: the value of a `job.job_state.Status`. */
export const STATUSES = [
  "starting",
  "running",
  "done",
  "failed",
  "cancelled",
  "interrupted",
  "ended with its kernel",
] as const;
export type Status = (typeof STATUSES)[number];

/** How much is done, in thousandths; -1 where that is not known. */
export type Done = number;

/** `[x, mean, low, high]` at a place of a chart, in thousandths of its width and height. */
export type Point = [number, number, number, number];

/** The whole job. */
export interface Head {
  name: string;
  place: string;
  status: Status;
  elapsed: string;
  left: string;
  done: Done;
  summary: string;
  note: string;
  /** `rows`, or `grid` where ranks are many. */
  layout: string;
  /** There is nothing yet to list ranks for. */
  brief: boolean;
  /** A cell waits for the job, so that the kernel's interrupt is meant for it. */
  blocking: boolean;
  /** How often its end has been asked for. */
  stopping: number;
  /** The ranks that failed, the first to fail at the head. */
  failed: number[];
  /** Where the metrics are that have no chart; empty where all have one. */
  more: string;
  /** What to say once the kernel is no longer heard, of a job that goes on without it; empty where it ends then. */
  unheard: string;
}

/** A progress bar of a rank. */
export interface Bar {
  depth: number;
  description: string;
  done: Done;
  amount: string;
  rate: string;
  left: string;
  postfix: string;
  closed: boolean;
}

/** A rank. */
export interface Rank {
  phase: Phase;
  /** Its node; empty where all ranks are on one. */
  host: string;
  /** What it does in that phase. */
  detail: string;
  done: Done;
  text: string;
  left: string;
  behind: boolean;
  error: string;
  /** What it holds, in memory and on its device. */
  memory: string;
  /** The device's alone; empty where it has none. */
  device: string;
  /** The latest of each metric, by name. */
  values: Record<string, string>;
  /** By number, in the order in which they began. */
  bars: Record<string, Bar>;
  /** Its last lines by number, counted from its first one. */
  lines: Record<string, string>;
  /** Its Python stack, a line a frame, while the job has stalled; else empty. */
  stack: string;
}

/** A metric over the run. */
export interface Metric {
  now: string;
  /** Between which values the ranks lie. */
  range: string;
  points: Point[];
}

/** All of it. */
export interface State {
  head: Head;
  ranks: Record<string, Rank>;
  metrics: Record<string, Metric>;
}

/** The whole state, after `seq` messages. Each message after it holds a merge patch (RFC 7396), in `messages.ts`. */
export interface Keyframe {
  seq: number;
  state: State;
}
