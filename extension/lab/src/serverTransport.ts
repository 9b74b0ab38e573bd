/** Carries the messages of a panel to the Jupyter server, and asks it what is new: one request at a time. */
import { ServerConnection } from "@jupyterlab/services";
import { newId } from "../../src/dom";
import type { Transport } from "../../src/jobLink";
import type { ServedUpdate } from "./model";

/** After a failure, in milliseconds; each further one doubles it. */
const FIRST_RETRY = 100;
const LONGEST_RETRY = 30_000;

/** What a panel does with the answers. */
export interface Receiver {
  /** The number of the state that it has; -1 if it has none. */
  seq(): number;
  /** Takes what is new. */
  receive(update: ServedUpdate): void;
  /** There is no answer; the next request is made by itself. */
  fail(error: Error): void;
  /** Milliseconds until the next request, which the server wants after `pause`; -1 if there is to be none. */
  pace(pause: number): number;
}

/** Sends messages of a panel called `panel` that has the state `seq`. */
export type Ask = (panel: string, seq: number, messages: object[]) => Promise<ServedUpdate>;

export class ServerTransport implements Transport {
  private readonly panel = newId();
  private messages: object[] = [];
  private isAsking = false;
  private isDisposed = false;
  private timer = 0;
  private retry = FIRST_RETRY;

  constructor(
    private readonly ask: Ask,
    private readonly receiver: Receiver,
  ) {}

  /** Sends a message of the panel, at once or with the next request. */
  send(message: object): void {
    this.messages.push(message);
    void this.refresh();
  }

  /** Asks now, unless a request is under way: what it doesn't contain is asked for next. */
  async refresh(): Promise<void> {
    if (this.isAsking || this.isDisposed) return;
    clearTimeout(this.timer);
    this.isAsking = true;
    const messages = this.messages.splice(0);
    const pause = await this.request(messages);
    this.isAsking = false;
    if (this.isDisposed) return;
    if (this.messages.length && pause === 0) {
      void this.refresh();
      return;
    }
    const next = pause < 0 ? pause : this.receiver.pace(pause);
    if (next >= 0) this.timer = window.setTimeout(() => void this.refresh(), next);
  }

  dispose(): void {
    this.isDisposed = true;
    clearTimeout(this.timer);
  }

  /** Makes a request; returns the milliseconds until the next one, or -1 if none is due. */
  private async request(messages: object[]): Promise<number> {
    try {
      const update = await this.ask(this.panel, this.receiver.seq(), messages);
      if (this.isDisposed) return -1;
      this.retry = FIRST_RETRY;
      if (update.reading) this.messages.unshift(...messages);
      this.receiver.receive(update);
      return this.messages.length && !update.reading ? 0 : update.pause;
    } catch (error) {
      if (this.isDisposed) return -1;
      // What the server has refused would be refused again.
      if (error instanceof ServerConnection.NetworkError) this.messages.unshift(...messages);
      this.receiver.fail(error as Error);
      const pause = this.retry;
      this.retry = Math.min(LONGEST_RETRY, 2 * pause);
      return pause;
    }
  }
}
