/** The messages from the kernel to the browser. The state of a job is in `model.ts`. */

/** The changes since the previous message: a merge patch (RFC 7396), sent as JSON in the message's buffer. */
export interface Delta {
  seq: number;
  patch: Patch;
}

export type Json = string | number | boolean | null | Json[] | { [name: string]: Json };
export type Patch = { [name: string]: Json };

/** The kernel has received a click on Stop, given by its number, or, if `ack` is 0, the panel's `ready`. */
export interface Acknowledgment {
  ack: number;
}

/** The kernel listens on its control channel. */
export interface ControlConfirmation {
  control: true;
}

/** The kernel has nothing new to say, and waits for a message that the page is there. */
export interface Ping {
  ping: true;
}

/** The answer to a request of a chart, given by its ID. Its buffers hold JSON and an array of numbers. */
export interface Answer {
  reply: string;
}

/** A flame graph or a profile that the user has asked for. Its buffer holds HTML. */
export interface Result {
  result: true;
}
