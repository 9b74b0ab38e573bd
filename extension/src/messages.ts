/** What goes between the kernel and the browser besides the state of a job, which `model.ts` has. */

/** What has changed since the message before: a merge patch (RFC 7396), as JSON in a buffer beside the number. */
export interface Delta {
  seq: number;
  patch: Patch;
}

export type Json = string | number | boolean | null | Json[] | { [name: string]: Json };
export type Patch = { [name: string]: Json };

/** The kernel has heard: of the stop requested by this click, or with 0 that the panel is there. */
export interface Acknowledgement {
  ack: number;
}
