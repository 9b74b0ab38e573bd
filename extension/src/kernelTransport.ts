import { newId } from "./dom";
import type { Transport } from "./jobLink";
import type { PanelUpdate } from "./model";

/** How often a widget tells the kernel that its page is there, in milliseconds. */
const SEEN_INTERVAL = 3000;
/** The statuses of a kernel that has ended or is restarting. */
const ENDED = ["restarting", "autorestarting", "terminating", "dead"];

/** The part of anywidget's model that is used here. */
export interface Model {
  get(name: string): unknown;
  send(content: object): void;
  on(event: string, callback: (content: unknown, buffers: DataView[]) => void): void;
  widget_manager?: unknown;
}

interface Kernel {
  clientId?: string;
  username?: string;
  interrupt?: () => Promise<void>;
  statusChanged?: Signal<string>;
  /** Emitted when the notebook switches to another kernel. */
  disposed?: Signal<void>;
  sendControlMessage?: (message: object, expectReply: boolean, disposeOnDone: boolean) => unknown;
}

/** Lumino's `ISignal`. */
interface Signal<Value> {
  connect(slot: (sender: unknown, value: Value) => void): void;
  disconnect(slot: (sender: unknown, value: Value) => void): void;
}

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

  /** Interrupts the kernel as the notebook's own button does, which works also where the widget manager has no kernel. */
  interrupt(): void {
    this.#kernel?.interrupt?.()?.catch(() => undefined);
  }

  /**
   * Calls `callback` when the kernel ends, is restarted or is replaced; never if the widget manager has no kernel. Returns
   * an unsubscribe function.
   */
  onKernelEnd(callback: () => void): () => void {
    const kernel = this.#kernel;
    const onStatus = (_: unknown, status: string) => {
      if (ENDED.includes(status)) callback();
    };
    kernel?.statusChanged?.connect(onStatus);
    kernel?.disposed?.connect(callback);
    return () => {
      kernel?.statusChanged?.disconnect(onStatus);
      kernel?.disposed?.disconnect(callback);
    };
  }

  get #kernel(): Kernel | undefined {
    return (this.#model.widget_manager as { kernel?: Kernel } | undefined)?.kernel;
  }

  /** Lets the kernel know from time to time that the page is there. */
  #tellThatSeen(): void {
    // Messages arrive also in a tab in the background, where timers hardly run.
    if (!this.#hasControl || performance.now() - this.#seenAt < SEEN_INTERVAL) return;
    this.#seenAt = performance.now();
    this.#sendControl({ cmd: "seen" });
  }

  /** Sends as a message whose type the front end doesn't take for a sign that the kernel is idle. */
  #sendControl(message: object): void {
    const kernel = this.#kernel;
    const header = {
      date: new Date().toISOString(),
      msg_id: newId(), // crypto.randomUUID needs https
      msg_type: "comm_info_request",
      session: kernel?.clientId ?? "",
      username: kernel?.username ?? "",
      version: "5.2",
    };
    const panel = { panel: this.#model.get("panel"), content: message };
    const content = { target_name: "notebook-accel", notebook_accel: panel };
    try {
      const sent = { header, parent_header: {}, metadata: {}, content, channel: "control", buffers: [] };
      kernel?.sendControlMessage?.(sent, true, true);
    } catch {
      // The kernel is gone, or not connected yet.
    }
  }
}
