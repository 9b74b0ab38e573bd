import { newId } from "./dom";

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

/** The statuses of a kernel that has ended or is restarting. */
const ENDED = ["restarting", "autorestarting", "terminating", "dead"];

/**
 * Interrupts the kernel as the notebook's own button does. Does nothing if the widget manager has no kernel; that button
 * still works then.
 */
export function interruptKernel(model: Model): void {
  kernelOf(model)
    ?.interrupt?.()
    ?.catch(() => undefined);
}

/**
 * Calls `callback` when the model's kernel ends, is restarted or is replaced; never if the widget manager has no kernel.
 * Returns an unsubscribe function.
 */
export function onKernelEnd(model: Model, callback: () => void): () => void {
  const kernel = kernelOf(model);
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

/**
 * Returns the function that sends a message on the kernel's control channel, as one whose type the front end doesn't take
 * for a sign that the kernel is idle; `undefined` if the widget manager has no kernel.
 */
export function controlChannel(model: Model): ((content: object) => void) | undefined {
  const kernel = kernelOf(model);
  if (kernel === undefined || typeof kernel.sendControlMessage !== "function") return undefined;
  return (content) => {
    const header = {
      date: new Date().toISOString(),
      msg_id: newId(), // crypto.randomUUID needs https
      msg_type: "comm_info_request",
      session: kernel.clientId ?? "",
      username: kernel.username ?? "",
      version: "5.2",
    };
    const message = { header, parent_header: {}, metadata: {}, content, channel: "control", buffers: [] };
    try {
      kernel.sendControlMessage?.(message, true, true);
    } catch {
      // The kernel is gone, or not connected yet.
    }
  };
}

function kernelOf(model: Model): Kernel | undefined {
  return (model.widget_manager as { kernel?: Kernel } | undefined)?.kernel;
}
