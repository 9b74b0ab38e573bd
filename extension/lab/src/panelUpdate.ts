/** What the server sends for the panel of a job in a tab; see `panel_update.py`. */
import type { Patch } from "../../src/messages";
import type { State } from "../../src/model";

/** The answer to a chart that is enlarged, or to a log that is open. */
export interface PanelAnswer {
  id: string;
  /** JSON. */
  content: string;
  /** What follows it, in base64. */
  bytes: string;
}

/** What is new since the last update. */
export interface PanelUpdate {
  seq: number;
  /** The whole state, if the page needs it. */
  state?: State;
  /** Otherwise, its changes, if there are any. */
  patch?: Patch;
  replies: PanelAnswer[];
  /** Flame graphs and profiles that were asked for and are ready, as HTML. */
  results: string[];
  /** Milliseconds until the page asks again; -1 if nothing changes from now on, unless the page has a request. */
  pause: number;
  /** Whether the journal is still being read, so that there is no state yet. */
  reading?: boolean;
}
