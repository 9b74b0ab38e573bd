/** The devices of the server's machine, asked for while someone looks at them. */
import { Poll } from "@lumino/polling";
import { type ISignal, Signal } from "@lumino/signaling";
import type { Device } from "./model";
import { listDevices } from "./server";

const PAUSE = 1000;
const LONGEST_PAUSE = 30_000;

export class Devices {
  private readonly changedSignal = new Signal<this, void>(this);
  private readonly poll: Poll<void>;
  private isWatched = false;
  /** The machine, then its GPUs. */
  all: Device[] = [];
  /** Why they, or the GPUs among them, are not known; empty if they are. */
  problem = "";

  constructor() {
    this.poll = new Poll<void>({
      name: "notebook-accel:devices",
      auto: false,
      factory: () => this.ask(),
      frequency: { interval: PAUSE, backoff: true, max: LONGEST_PAUSE },
      standby: () => document.hidden || !this.isWatched,
    });
    void this.poll.start();
  }

  /** Something was measured. */
  get changed(): ISignal<this, void> {
    return this.changedSignal;
  }

  /** Begins to ask, or stops; while nobody looks, the server measures nothing. */
  watch(isWatched: boolean): void {
    if (isWatched === this.isWatched) return;
    this.isWatched = isWatched;
    if (isWatched) void this.poll.refresh();
  }

  private async ask(): Promise<void> {
    if (!this.isWatched) return;
    try {
      const { devices, problem } = await listDevices();
      this.all = devices;
      this.problem = problem;
    } catch (error) {
      this.problem = error instanceof Error ? error.message : String(error);
      throw error; // so that the next request comes later
    } finally {
      this.changedSignal.emit();
    }
  }
}
