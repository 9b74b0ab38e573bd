/** What anywidget gives to a widget, as far as it is used here. */
export interface Model {
  get(name: string): unknown;
  send(content: object): void;
  on(event: string, callback: (content: unknown, buffers: DataView[]) => void): void;
  widget_manager?: unknown;
}

interface Kernel {
  interrupt?: () => Promise<void>;
  statusChanged?: Signal<string>;
  /** The notebook has been given another kernel. */
  disposed?: Signal<void>;
}

/** As Lumino has it. */
interface Signal<Value> {
  connect(slot: (sender: unknown, value: Value) => void): void;
  disconnect(slot: (sender: unknown, value: Value) => void): void;
}

/** What a kernel is that has ended, or is about to begin anew. */
const GONE = ["restarting", "autorestarting", "terminating", "dead"];

/**
 * Interrupts the kernel as the notebook's own button does. Where the manager of widgets knows no kernel this does
 * nothing, and that button remains.
 */
export function interruptKernel(model: Model): void {
  kernelOf(model)
    ?.interrupt?.()
    ?.catch(() => undefined);
}

/**
 * Calls `callback` when the kernel that the model belongs to ends, is restarted or replaced; returns what ends that. Where the
 * manager of widgets knows no kernel, it is not called.
 */
export function onKernelEnd(model: Model, callback: () => void): () => void {
  const kernel = kernelOf(model);
  const onStatus = (_: unknown, status: string) => {
    if (GONE.includes(status)) callback();
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
