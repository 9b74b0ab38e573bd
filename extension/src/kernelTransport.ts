import type { Transport } from "./jobLink";
import { controlChannel, interruptKernel, type Model } from "./kernel";
import type { PanelUpdate } from "./model";

/** How often a widget tells the kernel that its page is there, in milliseconds. */
const SEEN_INTERVAL = 3000;

/**
 * Carries a widget's messages to the kernel, and tells it whether the page is there. They go on the kernel's control
 * channel, which the kernel also reads while a cell runs, once the kernel has shown that it listens there; until then, as
 * the widget's own messages. An update comes as a field of the widget if it has the whole state, and otherwise as JSON in
 * a message's first buffer.
 */
export class KernelTransport implements Transport {
  #model: Model;
  #hasControl = false;
  #seenAt = Number.NEGATIVE_INFINITY;

  constructor(model: Model, receive: (update: PanelUpdate, buffers: DataView[]) => void) {
    this.#model = model;
    model.on("change:keyframe", () => receive(this.keyframe, []));
    model.on("msg:custom", (_, [json, ...buffers]) => {
      this.#tellThatSeen();
      const update = JSON.parse(new TextDecoder().decode(json)) as PanelUpdate;
      if (update.control) this.#hasControl = true;
      receive(update, buffers);
    });
  }

  /** The last update with the whole state. */
  get keyframe(): PanelUpdate {
    return this.#model.get("keyframe") as PanelUpdate;
  }

  /** Sends a message; on both channels if it says that the page is there, and the kernel may not listen to one of them. */
  send(message: object): void {
    const isReady = (message as { cmd?: string }).cmd === "ready";
    if (this.#hasControl || isReady) this.#sendControl(message);
    if (!this.#hasControl) this.#model.send(message);
  }

  interrupt(): void {
    interruptKernel(this.#model);
  }

  /** Lets the kernel know from time to time that the page is there. */
  #tellThatSeen(): void {
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
