import { afterKernelLoss, isLive } from "./kernelLost";
import type { PanelUpdate, State } from "./model";
import { copyFields, merge } from "./patch";

/** An update with the whole state, and one with the changes since the state before. */
type Keyframe = Required<Pick<PanelUpdate, "seq" | "state">>;
type Delta = Required<Pick<PanelUpdate, "seq" | "patch">>;

/** How many deltas may wait for a missing one. A keyframe, requested as soon as one is missing, arrives long before. */
const MAX_PENDING = 200;

/** The last state of the job. A kernel sends keyframes and deltas in two ways, so they may arrive in another order. */
export class Store {
  #state: State;
  #seq: number;
  #pending = new Map<number, Delta>();
  #listeners = new Set<() => void>();
  #isConnected = true;

  constructor(first: Keyframe) {
    this.#state = copyFields(first.state);
    this.#seq = first.seq;
  }

  get state(): State {
    return this.#state;
  }

  /** The number of the last message that the state contains. */
  get seq(): number {
    return this.#seq;
  }

  /** Whether the kernel that reports on the job is there, or has reported its end. */
  get isConnected(): boolean {
    return this.#isConnected;
  }

  /** Calls `listener` after each change; returns an unsubscribe function. */
  subscribe(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Replaces the whole state, unless it is already newer. */
  replace(keyframe: Keyframe): void {
    if (keyframe.seq < this.#seq) return;
    this.#state = copyFields(keyframe.state);
    this.#seq = keyframe.seq;
    this.#applyPending();
  }

  /** Applies a delta; returns false if messages before it are missing. It is then kept until they arrive. */
  apply(delta: Delta): boolean {
    if (delta.seq <= this.#seq) return true;
    if (this.#pending.size < MAX_PENDING) this.#pending.set(delta.seq, delta);
    if (!this.#pending.has(this.#seq + 1)) return false;
    this.#applyPending();
    return true;
  }

  /** Records that the kernel is gone, so that no more messages arrive. */
  disconnect(): void {
    if (!this.#isConnected || !isLive(this.#state.head)) return;
    this.#isConnected = false;
    this.#state = afterKernelLoss(this.#state);
    this.#notify();
  }

  #applyPending(): void {
    for (const seq of this.#pending.keys()) if (seq <= this.#seq) this.#pending.delete(seq);
    for (;;) {
      const next = this.#pending.get(this.#seq + 1);
      if (next === undefined) break;
      this.#pending.delete(next.seq);
      this.#state = merge(this.#state, next.patch);
      this.#seq = next.seq;
    }
    this.#notify();
  }

  #notify(): void {
    for (const listener of this.#listeners) listener();
  }
}
