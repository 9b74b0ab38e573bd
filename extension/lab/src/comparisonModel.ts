/**
 * Written by scripts/generate from notebook_accel/jupyter/comparison_model.py.
 */

/** A metric of one job, over the run. */
export interface Run {
  id: string;
  /** What the job is called, and when it began. */
  label: string;
  /** Whether `x` are steps; otherwise, the reports of each rank are counted. */
  by_step: boolean;
  /** The steps, thinned; the middle one of those that share a point. */
  x: number[];
  /** The mean of the ranks at each step; `None` if no value is finite. */
  mean: (number | null)[];
  /** Why the values are missing; empty if they aren't. */
  problem: string;
}

/** A metric of several jobs. */
export interface Comparison {
  metric: string;
  /** All metrics that any of the jobs has reported. */
  names: string[];
  /** In the order in which they were asked for. */
  runs: Run[];
  /** Whether everything was read; otherwise, the next request has more. */
  complete: boolean;
}
