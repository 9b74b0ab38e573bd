/** The user's jobs, asked for while someone looks at them. */
import { Poll } from "@lumino/polling";
import { type ISignal, Signal } from "@lumino/signaling";
import type { JobListing, JobRow } from "./model";
import { LONGEST_PAUSE, polled, problemOf } from "./poll";
import { anyRuns, listJobs } from "./server";

/** How someone looks at the jobs. */
export interface Watcher {
  /** Milliseconds between two requests; the shortest of all who look counts. */
  pause: number;
  /** Whether progress and metrics are needed only of jobs that run. */
  brief: boolean;
}

export class Jobs {
  private readonly changedSignal = new Signal<this, void>(this);
  private readonly endedSignal = new Signal<this, JobRow>(this);
  private readonly watchers = new Map<string, Watcher>();
  private readonly poll = polled(
    "jobs",
    Poll.NEVER,
    () => this.ask(),
    (problem) => this.fail(problem),
    () => this.watchers.size > 0,
  );
  /** The newest first. */
  rows: JobRow[] = [];
  /** Why they are not known; empty if they are. */
  problem = "";
  /** Whether the server has answered yet. */
  known = false;

  /** The list has changed, or what is known of a job. */
  get changed(): ISignal<this, void> {
    return this.changedSignal;
  }

  /** A job that was running has ended, unless it is one of many whose ends are told elsewhere. */
  get ended(): ISignal<this, JobRow> {
    return this.endedSignal;
  }

  /** The last job that runs, if one does. */
  get running(): JobRow | undefined {
    return this.rows.find((row) => row.live);
  }

  /**
   * Asks for the jobs from now on.
   * @param who - Who looks.
   * @param watcher - How.
   */
  watch(who: string, watcher: Watcher): void {
    this.watchers.set(who, watcher);
    this.setPause();
    void this.poll.refresh();
  }

  /** Stops asking for this one. */
  unwatch(who: string): void {
    this.watchers.delete(who);
    this.setPause();
  }

  /** Asks now, also for jobs that have ended. */
  async refresh(): Promise<void> {
    await this.list().catch((error: unknown) => this.fail(problemOf(error)));
  }

  private setPause(): void {
    const pauses = [...this.watchers.values()].map((each) => each.pause);
    const interval = pauses.length ? Math.min(...pauses) : Poll.NEVER;
    this.poll.frequency = { interval, backoff: true, max: Math.max(LONGEST_PAUSE, interval) };
  }

  /** Asks what those who look need. While no job runs, that is nothing, so that the server need not read any. */
  private async ask(): Promise<void> {
    if (this.isBrief && !this.running && !(await anyRuns())) return;
    await this.list();
  }

  private async list(): Promise<void> {
    this.set(await listJobs(this.isBrief));
  }

  private get isBrief(): boolean {
    return [...this.watchers.values()].every((each) => each.brief);
  }

  /** Without an answer of the server, the list stays. */
  private fail(problem: string): void {
    this.set({ jobs: this.rows, problem });
  }

  private set(listing: JobListing): void {
    const wasLive = new Set(this.rows.filter((row) => row.live).map((row) => row.id));
    this.rows = listing.jobs;
    this.problem = listing.problem;
    this.known = true;
    this.changedSignal.emit();
    for (const row of this.rows) if (!row.live && !row.part && wasLive.has(row.id)) this.endedSignal.emit(row);
  }
}

/** The status of a job as the user sees it: of one that can't be read, nobody knows how it ended. */
export function statusText(row: JobRow): string {
  return row.live || row.code ? row.state : "ended";
}

/** How a job has ended, in a sentence: `train() failed on rank 1: KeyError: 'x'`. */
export function endText(row: JobRow): string {
  const status = statusText(row);
  if (!row.note) return `${row.title}: ${status}`;
  return `${row.title} ${status}${row.note.startsWith("rank ") ? " on" : ":"} ${row.note}`;
}
