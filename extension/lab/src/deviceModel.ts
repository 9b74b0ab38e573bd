/**
 * Written by scripts/generate from notebook_accel/jupyter/device_model.py.
 */

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
