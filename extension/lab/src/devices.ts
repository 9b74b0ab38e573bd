/** The devices of the server's machine, asked for while someone looks at them. */
import type { Poll } from "@lumino/polling";
import { type ISignal, Signal } from "@lumino/signaling";
import type { Device } from "./model";
import { polled, problemOf } from "./poll";
import { listDevices } from "./server";

const PAUSE = 1000;

export class Devices {
  private readonly changedSignal = new Signal<this, void>(this);
  private readonly poll: Poll<void> = polled(
    "devices",
    PAUSE,
    () => this.ask(),
    () => this.isWatched,
  );
  private isWatched = false;
  /** The machine, then its GPUs. */
  all: Device[] = [];
  /** Why they, or the GPUs among them, are not known; empty if they are. */
  problem = "";

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
      this.problem = problemOf(error);
      throw error; // so that the next request comes later
    } finally {
      this.changedSignal.emit();
    }
  }
}
