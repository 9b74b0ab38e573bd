import { isLive } from "./kernelLost";
import type { Store } from "./store";

/** The time that the kernel has to acknowledge a click before it is interrupted, in milliseconds. */
const ACK_TIMEOUT = 400;

export type StopState = "stop" | "stopping" | "killing" | "stopped" | "disconnected";

/** The connection that `Stopper` uses. */
export interface StopLink {
  send(content: object): void;
  interrupt(): void;
  store(): Pick<Store, "state" | "isConnected">;
}

/**
 * Stop escalation. The first click sends a message that requests a stop. A kernel that is busy with the job's cell may
 * not receive it; it is then interrupted, which has the same effect on the job. For a job in the background, the message
 * always arrives, and an interrupt would hit whichever cell is running, so none is sent. A second click kills the ranks.
 */
export class Stopper {
  #link: StopLink;
  #clicks = 0;
  #acknowledged = 0;
  #announcedAt = 0;
  #ackTimeout = ACK_TIMEOUT;

  constructor(link: StopLink) {
    this.#link = link;
  }

  get state(): StopState {
    const { state, isConnected } = this.#link.store();
    if (!isLive(state.head)) return "stopped";
    if (!isConnected) return "disconnected";
    const requests = Math.max(this.#clicks, state.head.stopping);
    return requests === 0 ? "stop" : requests === 1 ? "stopping" : "killing";
  }

  /** Tells the kernel that the panel is there. The time until its reply sets the timeout for later replies. */
  announce(): void {
    this.#announcedAt = performance.now();
    this.#link.send({ cmd: "ready" });
  }

  click(): void {
    const { head } = this.#link.store().state;
    const click = Math.max(this.#clicks, head.stopping) + 1;
    this.#clicks = click;
    this.#link.send({ cmd: "stop", click });
    if (!head.blocking) return;
    setTimeout(() => {
      if (this.#acknowledged < click && this.state !== "stopped") this.#link.interrupt();
    }, this.#ackTimeout);
  }

  acknowledge(click: number): void {
    this.#acknowledged = Math.max(this.#acknowledged, click);
    // A reply that took longer waited for a cell to end, so it does not measure the round trip.
    const roundTrip = performance.now() - this.#announcedAt;
    if (click === 0 && roundTrip < 1000) this.#ackTimeout = Math.max(ACK_TIMEOUT, 4 * roundTrip);
  }
}
