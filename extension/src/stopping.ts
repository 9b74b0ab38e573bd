import type { Head } from "./model";
import { isLive } from "./unheard";

/** Milliseconds that the kernel has to acknowledge a click before it is interrupted. */
const PATIENCE = 400;

export type StopState = "stop" | "stopping" | "killing" | "stopped" | "unheard";

/** What stopping needs of the world. */
export interface Line {
  send(content: object): void;
  interrupt(): void;
  head(): Head;
  /** Whether the kernel is there to hear of a click. */
  isHeard(): boolean;
}

/**
 * The ladder: a message asks the job to stop; a kernel that is busy running the job's cell may not hear it, and is then
 * interrupted, which that job takes for the same. A job in the background always hears, and an interrupt would hit
 * whatever cell runs just then. A second click kills.
 */
export class Stopper {
  #line: Line;
  #clicks = 0;
  #heard = 0;
  #askedAt = 0;
  #patience = PATIENCE;

  constructor(line: Line) {
    this.#line = line;
  }

  get state(): StopState {
    const head = this.#line.head();
    if (!isLive(head)) return "stopped";
    if (!this.#line.isHeard()) return "unheard";
    const asked = Math.max(this.#clicks, head.stopping);
    return asked === 0 ? "stop" : asked === 1 ? "stopping" : "killing";
  }

  /** Says that the panel is there. How long the answer takes tells how long to wait for others. */
  greet(): void {
    this.#askedAt = performance.now();
    this.#line.send({ cmd: "ready" });
  }

  click(): void {
    const click = Math.max(this.#clicks, this.#line.head().stopping) + 1;
    this.#clicks = click;
    this.#line.send({ cmd: "stop", click });
    if (!this.#line.head().blocking) return;
    setTimeout(() => {
      if (this.#heard < click && this.state !== "stopped") this.#line.interrupt();
    }, this.#patience);
  }

  acknowledge(click: number): void {
    this.#heard = Math.max(this.#heard, click);
    // The first answer may have waited for the end of a cell, which says nothing of the way.
    const took = performance.now() - this.#askedAt;
    if (click === 0 && took < 1000) this.#patience = Math.max(PATIENCE, 4 * took);
  }
}
