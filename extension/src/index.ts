import { interruptKernel, type Model, onKernelEnd } from "./host";
import type { Acknowledgement, Delta, Patch } from "./messages";
import type { Keyframe } from "./model";
import { Panel } from "./panel";
import { Stopper } from "./stopping";
import { Store } from "./store";

/** What anywidget calls: once for a job's model, then for each place where it is shown. */
export default function widget() {
  let store: Store;
  let stopper: Stopper;
  const panels = new Set<Panel>();

  function initialize({ model }: { model: Model }): () => void {
    store = new Store(model.get("keyframe") as Keyframe);
    stopper = new Stopper({
      send: (content) => model.send(content),
      interrupt: () => interruptKernel(model),
      head: () => store.state.head,
      isHeard: () => store.isHeard,
    });
    model.on("change:keyframe", () => store.replace(model.get("keyframe") as Keyframe));
    model.on("msg:custom", (content, buffers) => {
      const message = content as Pick<Delta, "seq"> | Acknowledgement;
      if ("ack" in message) stopper.acknowledge(message.ack);
      else if (!store.apply({ ...message, patch: unpack(buffers) })) model.send({ cmd: "ready" });
    });
    stopper.greet();
    return onKernelEnd(model, () => store.endHearing());
  }

  function render({ el }: { el: HTMLElement }): () => void {
    // When an output is drawn again, its view goes without a word. The new one takes over what the user has unfolded.
    let panel = [...panels].find((each) => !each.element.isConnected);
    if (panel === undefined) {
      panel = new Panel(store, stopper);
      panels.add(panel);
    }
    panel.moveInto(el);
    const shown = panel;
    return () => {
      if (!el.contains(shown.element)) return; // another view has it now
      panels.delete(shown);
      shown.dispose();
    };
  }

  return { initialize, render };
}

function unpack(buffers: DataView[]): Patch {
  return JSON.parse(new TextDecoder().decode(buffers[0])) as Patch;
}
