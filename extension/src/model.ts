/**
 * Written by scripts/generate from notebook_accel/panel/panel_model.py.
 */

import type { Json } from "./patch";

/** The phase of a rank: the value of an `events.Phase`. */
export const PHASES = [
  "starting",
  "idle",
  "loading",
  "running",
  "waiting",
  "paused",
  "done",
  "failed",
  "stopped",
] as const;
export type Phase = (typeof PHASES)[number];

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

/** `[step, kind]` of values that are not finite: 0 for NaN, 1 for infinity, -1 for minus infinity. */
export type Mark = [number, number];

/** `[position, rank, stream, milliseconds, level, text]` of a line that a rank has written: its stream is 0 for stdout
and 1 for stderr; its level 1 for a warning, 2 for an error, and 0 otherwise. */
export type LogLineRow = [number, number, number, number, number, string];

/** The job as a whole. */
export interface Head {
  name: string;
  /** How many ranks on which hardware, and the attempt if it is not the first. */
  devices: string;
  status: Status;
  /** The status in a word, and while the job runs, what is wrong or special, such as `stalled`. */
  state: string;
  /** How far it is, such as `epoch 2/5 › batch 31/47`. */
  place: string;
  elapsed: string;
  time_left: string;
  done: Done;
  /** Choices that were made for the user, one a line; empty if there are none. */
  choices: string;
  /** How it was restarted, and what the user has changed. */
  changes: string[];
  /** What the percentage of the whole job hides, such as a rank that is slower. */
  summary: string;
  /** What is known of the run: its call, when it began, and the like, by name. */
  about: Record<string, string>;
  /** How it is getting on, in a few words, for the title of the browser's tab: `57% · loss 0.21`. */
  tab: string;
  /** A notice about the whole job, such as a stall; empty if there is none. */
  note: string;
  /** What would make it faster; empty if nothing is known. */
  advice: string;
  /** `rows`, or `grid` if there are many ranks. */
  layout: string;
  /** Whether to show one line only, because the ranks have nothing to show yet. */
  brief: boolean;
  /** Whether a cell waits for the job, so that an interrupt of the kernel stops the job. */
  blocking: boolean;
  /** How many times a stop has been requested. */
  stopping: number;
  /** The ranks that failed, in the order in which they failed. */
  failed: number[];
  /** The metrics, in the order in which they were first reported. */
  metric_names: string[];
  /** How many metrics are left out of `metric_names`, and where to find them; empty if none are. */
  metrics_note: string;
  /** The notice to show once the kernel is gone, if the job runs without it; empty if the job ends with it. */
  kernel_lost_note: string;
}

/** What a button does to the training. */
export interface Command {
  /** The action of an `events.Control`. */
  action: string;
  label: string;
  /** What it does, or why that is not possible. */
  hint: string;
  possible: boolean;
}

/** A value that can be changed while the job runs. */
export interface Field {
  /** What sets it. */
  action: string;
  name: string;
  value: string;
  /** Its limits, or what to write; empty if there is nothing to say. */
  hint: string;
  /** What the field shows while it is empty. */
  example: string;
  /** What a number is a multiple of: `1`, or `any`; empty if the value is text. */
  step: string;
}

/** What the user can do to the training. */
export interface Controls {
  commands: Command[];
  fields: Field[];
  /** What became of the last request, unless it was done: that is among the choices. */
  feedback: string;
}

/** A progress bar of a rank. */
export interface Bar {
  depth: number;
  description: string;
  done: Done;
  amount: string;
  rate: string;
  time_left: string;
  postfix: string;
  closed: boolean;
}

/** The state of a rank. */
export interface Rank {
  phase: Phase;
  /** Its node; empty if all ranks are on one node. */
  host: string;
  /** What it is doing in that phase. */
  detail: string;
  done: Done;
  text: string;
  time_left: string;
  /** Why it stands out among the ranks, such as `behind`; empty if it does not. */
  mark: string;
  error: string;
  /** Whether it failed only because another rank had. */
  is_consequence: boolean;
  /** The memory that it uses, on the host and on its device. */
  memory: string;
  /** How busy it is, and its memory, in a few words. */
  usage: string;
  /** What its process and its device do, by what it is, and the most memory of each phase. */
  usage_facts: Record<string, string>;
  /** What is wrong with its device; empty if nothing is. */
  warning: string;
  /** The latest value of each metric, by name. */
  values: Record<string, string>;
  /** Its progress bars, by number in the order in which they began. */
  bars: Record<string, Bar>;
  /** Its last lines of output, by number, counted from its first line. */
  lines: Record<string, string>;
  /** Its Python stack while the job is stalled, or when the user asked for it; otherwise empty. */
  stack: string;
}

/** A metric over the run. */
export interface Metric {
  /** The last value, as it was reported; with several ranks, the mean of their values at the last step. */
  now: string;
  /** The minimum and maximum over the ranks at that step; empty if they are equal. */
  range: string;
  /** The fact that matters most, such as `best 0.12 at step 400`. */
  brief: string;
  /** The step of the last value; the first, best, least, and greatest value, each with its step; values not finite. */
  facts: string[];
  /** Whether `x` are steps; otherwise, the reports of each rank are counted. */
  by_step: boolean;
  /** The steps, thinned; the first one of those that share a point. */
  x: number[];
  /** The last one of them; empty if none share a point. */
  last: number[];
  /** The mean of the values that are finite at each step; `None` if there are none. */
  mean: (number | null)[];
  /** The minimum of the ranks and steps of each point; empty if it is the mean everywhere. */
  low: (number | null)[];
  high: (number | null)[];
  marks: Mark[];
}

/** Everything that the panel draws. */
export interface State {
  head: Head;
  controls: Controls;
  ranks: Record<string, Rank>;
  metrics: Record<string, Metric>;
}

/** The values of one metric in the range of steps that an enlarged chart shows; its numbers follow in a buffer. */
export interface ChartTable {
  /** The ID of an earlier job; empty for the panel's own. */
  job: string;
  metric: string;
  /** The number of points. Each column has as many numbers: first step, last step, mean, minimum, and maximum. */
  size: number;
  /** The ranks whose means follow, in a column each. */
  ranks: number[];
  marks: Mark[];
  by_step: boolean;
  /** The first and the last step of the whole run. */
  extent: [number, number];
}

/** The answer to an enlarged chart. */
export interface ChartReply {
  id: string;
  /** The milliseconds after which the chart may ask for newer values. */
  pause: number;
  /** Why something is missing; empty if nothing is. */
  problem: string;
  tables: ChartTable[];
}

/** A job whose metrics can be drawn behind those of the panel's job. */
export interface EarlierJob {
  id: string;
  label: string;
}

/** The answer to a chart that asks for earlier jobs. */
export interface EarlierReply {
  id: string;
  jobs: EarlierJob[];
}

/** The answer to a log that asks for lines. */
export interface LogReply {
  id: string;
  /** The position that the search came to. The lines before it are asked for next. */
  first: number;
  /** The position of the end of the log. The lines after it are asked for next. */
  end: number;
  /** Whether there are lines before `first`. */
  more: boolean;
  /** Whether new lines were left out between those that were asked for and these, because they are too many. */
  gap: boolean;
  /** Why there are no lines; empty if there may be. */
  problem: string;
  lines: LogLineRow[];
}

/** The answer to a log that asks for its text, of which the next part follows in a buffer. */
export interface LogTextReply {
  id: string;
  /** The position where this part ends; if nothing follows, that of the request. */
  end: number;
  /** The position of the first byte that is still stored. */
  first: number;
  /** The position of the end of the log. */
  last: number;
  /** Why it can't be read; empty if it can. */
  problem: string;
}

/** What answers a message that has an `id`, and says who asks as `asker`. */
export type Answer = ChartReply | EarlierReply | LogReply | LogTextReply;

/** What is new for a panel; without anything, it only asks the page to say that it is there. */
export interface PanelUpdate {
  /** The number of the state that the page then has. It needs the whole state if it lacks the one before. */
  seq?: number;
  /** The whole state. */
  state?: State;
  /** Or the changes since the state before: a merge patch (RFC 7396). */
  patch?: Record<string, Json>;
  /** The answers that are ready. Numbers or text follow each, in a buffer of its own. */
  replies?: Answer[];
  /** The flame graphs and profiles that were asked for and are ready, as HTML. */
  results?: string[];
  /** The click on Stop that the kernel has received, or 0 if it has received that the page is there. */
  ack?: number;
  /** Whether the kernel has received that on its control channel. */
  control?: boolean;
}
