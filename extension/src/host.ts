/** The part of anywidget's model that is used here. */
export interface Model {
  get(name: string): unknown;
  send(content: object): void;
  on(event: string, callback: (content: unknown, buffers: DataView[]) => void): void;
  widget_manager?: unknown;
}

interface Kernel {
  interrupt?: () => Promise<void>;
  statusChanged?: Signal<string>;
  /** Emitted when the notebook switches to another kernel. */
  disposed?: Signal<void>;
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

function kernelOf(model: Model): Kernel | undefined {
  return (model.widget_manager as { kernel?: Kernel } | undefined)?.kernel;
}
