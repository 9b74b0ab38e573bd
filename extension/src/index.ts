import { JobLink } from "./jobLink";
import { KernelTransport, type Model } from "./kernelTransport";

/** The entry point. anywidget calls `initialize` once for a job's model, and `render` for each output that shows it. */
export default function widget() {
  let link: JobLink;

  function initialize({ model }: { model: Model }): () => void {
    const transport = new KernelTransport(model, (...received) => link.receive(...received));
    link = new JobLink(transport, true);
    link.receive(transport.keyframe);
    link.stopper.announce();
    const unsubscribe = transport.onKernelEnd(() => link.store?.disconnect());
    return () => {
      unsubscribe();
      link.dispose();
    };
  }

  function render({ el }: { el: HTMLElement }): () => void {
    // JupyterLab removes a view without calling its cleanup when it redraws the output. Reuse that view's panel, so that
    // the rows that the user expanded stay expanded.
    const panel = [...link.panels].find((each) => !each.element.isConnected) ?? link.open();
    panel.moveInto(el);
    return () => {
      if (el.contains(panel.element)) link.close(panel); // otherwise, another view has taken it over
    };
  }

  return { initialize, render };
}
