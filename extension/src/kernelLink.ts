import { controlChannel, type Model } from "./kernel";
import type { ControlConfirmation } from "./messages";

/** How often a widget tells the kernel that its page is there, in milliseconds. */
const SEEN_INTERVAL = 3000;

/**
 * Sends a widget's messages to the kernel, and tells it whether the page is there. They go on the kernel's control
 * channel, which the kernel also reads while a cell runs, once the kernel has shown that it listens there; until then, as
 * the widget's own messages.
 */
export class KernelLink {
  #model: Model;
  #hasControl = false;
  #seenAt = Number.NEGATIVE_INFINITY;

  constructor(model: Model) {
    this.#model = model;
    model.on("msg:custom", (content) => {
      this.received();
      if ("control" in (content as Partial<ControlConfirmation>)) this.#hasControl = true;
    });
  }

  send(content: object): void {
    if (this.#hasControl) this.#sendControl(content);
    else this.#model.send(content);
  }

  /** Tells the kernel that the panel is there, on both channels unless it is known to listen on the control channel. */
  announce(): void {
    if (!this.#hasControl) this.#sendControl({ cmd: "ready" });
    this.send({ cmd: "ready" });
  }

  /** Called for each message of the kernel: lets it know from time to time that the page is there. */
  received(): void {
    // Messages arrive also in a tab in the background, where timers hardly run.
    if (!this.#hasControl || performance.now() - this.#seenAt < SEEN_INTERVAL) return;
    this.#seenAt = performance.now();
    this.#sendControl({ cmd: "seen" });
  }

  #sendControl(content: object): void {
    const panel = this.#model.get("panel");
    controlChannel(this.#model)?.({ target_name: "notebook-accel", notebook_accel: { panel, content } });
  }
}
