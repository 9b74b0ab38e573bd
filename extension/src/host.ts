/** What anywidget gives to a widget, as far as it is used here. */
export interface Model {
  get(name: string): unknown;
  send(content: object): void;
  on(event: string, callback: (content: unknown, buffers: DataView[]) => void): void;
  widget_manager?: unknown;
}

/**
 * Interrupts the kernel as the notebook's own button does. Where the manager of widgets knows no kernel this does
 * nothing, and that button remains.
 */
export function interruptKernel(model: Model): void {
  const manager = model.widget_manager as { kernel?: { interrupt?: () => Promise<void> } } | undefined;
  manager?.kernel?.interrupt?.()?.catch(() => undefined);
}
