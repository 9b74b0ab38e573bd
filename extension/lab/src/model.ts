/**
 * Written by scripts/generate from notebook_accel/jupyter/job_model.py.
 */

/** The status of a job: the value of a `launch.job.job_state.Status`. */
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
  status: Status;
  /** Whether it may still run. */
  live: boolean;
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
}

/** The user's last jobs. */
export interface JobListing {
  /** The newest first. */
  jobs: JobRow[];
  /** Why the jobs cannot be listed; empty if they can. */
  problem: string;
}
