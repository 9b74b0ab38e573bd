/** What anywidget gives to a widget, as far as it is used here. */
export interface Model {
  get(name: string): unknown;
  send(content: object): void;
  on(event: string, callback: (content: unknown, buffers: DataView[]) => void): void;
  widget_manager?: unknown;
}

interface Kernel {
  interrupt?: () => Promise<void>;
  /** A signal of Lumino's. */
  statusChanged?: { connect(slot: Slot): void; disconnect(slot: Slot): void };
}
type Slot = (kernel: unknown, status: string) => void;

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
 * Calls `callback` when the kernel that the model belongs to ends or is restarted; returns what ends that. Where the
 * manager of widgets knows no kernel, it is not called.
 */
export function onKernelEnd(model: Model, callback: () => void): () => void {
  const signal = kernelOf(model)?.statusChanged;
  const slot: Slot = (_, status) => {
    if (GONE.includes(status)) callback();
  };
  signal?.connect(slot);
  return () => signal?.disconnect(slot);
}

function kernelOf(model: Model): Kernel | undefined {
  return (model.widget_manager as { kernel?: Kernel } | undefined)?.kernel;
}
