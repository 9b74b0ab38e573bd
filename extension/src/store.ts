import type { Delta } from "./messages";
import type { Keyframe, State } from "./model";
import { merge } from "./patch";
import { isLive, withoutKernel } from "./unheard";

/** How many deltas may wait for one that is missing; a keyframe is on its way long before. */
const MOST_HELD = 200;

/** The job as the kernel has told it so far. Keyframes and deltas come on two ways, so one may overtake the other. */
export class Store {
  #state: State;
  #seq: number;
  #held = new Map<number, Delta>();
  #listeners = new Set<() => void>();
  #isHeard = true;

  constructor(first: Keyframe) {
    this.#state = first.state;
    this.#seq = first.seq;
  }

  get state(): State {
    return this.#state;
  }

  /** How many messages the state is made of. */
  get seq(): number {
    return this.#seq;
  }

  /** Whether the kernel that tells of the job is there, or has told its end. */
  get isHeard(): boolean {
    return this.#isHeard;
  }

  /** Calls `listener` after each change; returns what ends that. */
  subscribe(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Takes in the whole state. */
  replace(keyframe: Keyframe): void {
    if (keyframe.seq < this.#seq) return;
    this.#state = keyframe.state;
    this.#seq = keyframe.seq;
    this.#goOn();
  }

  /** Takes in what has changed; returns false where messages before it are missing. */
  apply(delta: Delta): boolean {
    if (delta.seq <= this.#seq) return true;
    if (this.#held.size < MOST_HELD) this.#held.set(delta.seq, delta);
    if (!this.#held.has(this.#seq + 1)) return false;
    this.#goOn();
    return true;
  }

  /** The kernel is gone: what it has told is the last that is heard of the job. */
  endHearing(): void {
    if (!this.#isHeard || !isLive(this.#state.head)) return;
    this.#isHeard = false;
    this.#state = withoutKernel(this.#state);
    this.#tell();
  }

  #goOn(): void {
    for (const seq of this.#held.keys()) if (seq <= this.#seq) this.#held.delete(seq);
    for (;;) {
      const next = this.#held.get(this.#seq + 1);
      if (next === undefined) break;
      this.#held.delete(next.seq);
      this.#state = merge(this.#state, next.patch);
      this.#seq = next.seq;
    }
    this.#tell();
  }

  #tell(): void {
    for (const listener of this.#listeners) listener();
  }
}
