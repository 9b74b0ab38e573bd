import { interruptKernel, type Model, onKernelEnd } from "./kernel";
import { KernelLink } from "./kernelLink";
import type { Acknowledgment, Answer, ControlConfirmation, Delta, Patch, Ping, Result } from "./messages";
import type { Keyframe } from "./model";
import { followOnPage } from "./page";
import { Panel } from "./panel";
import { Questions } from "./questions";
import { Stopper } from "./stopper";
import { Store } from "./store";

/** The entry point. anywidget calls `initialize` once for a job's model, and `render` for each output that shows it. */
export default function widget() {
  let store: Store;
  let stopper: Stopper;
  let link: KernelLink;
  let questions: Questions;
  const panels = new Set<Panel>();

  function initialize({ model }: { model: Model }): () => void {
    link = new KernelLink(model);
    questions = new Questions((content) => link.send(content));
    store = new Store(model.get("keyframe") as Keyframe);
    stopper = new Stopper({
      send: questions.send,
      announce: () => link.announce(),
      interrupt: () => interruptKernel(model),
      head: () => store.state.head,
      isConnected: () => store.isConnected,
    });
    model.on("change:keyframe", () => store.replace(model.get("keyframe") as Keyframe));
    model.on("msg:custom", (content, buffers) => {
      const message = content as Pick<Delta, "seq"> | Acknowledgment | ControlConfirmation | Ping | Answer | Result;
      if ("reply" in message) questions.receive(message.reply, buffers);
      else if ("result" in message) for (const panel of panels) panel.addResult(text(buffers), true);
      else if ("ack" in message) stopper.acknowledge(message.ack);
      else if ("seq" in message && !store.apply({ ...message, patch: unpack(buffers) })) link.send({ cmd: "ready" });
    });
    stopper.announce();
    const unsubscribe = onKernelEnd(model, () => store.disconnect());
    const unfollow = followOnPage(store);
    return () => {
      unsubscribe();
      unfollow();
    };
  }

  function render({ el }: { el: HTMLElement }): () => void {
    // JupyterLab removes a view without calling its cleanup when it redraws the output. Reuse that view's panel, so that
    // the rows that the user expanded stay expanded.
    let panel = [...panels].find((each) => !each.element.isConnected);
    if (panel === undefined) {
      panel = new Panel(store, stopper, questions);
      panels.add(panel);
    }
    panel.moveInto(el);
    const shown = panel;
    return () => {
      if (!el.contains(shown.element)) return; // another view has taken it over
      panels.delete(shown);
      shown.dispose();
    };
  }

  return { initialize, render };
}

function text(buffers: DataView[]): string {
  return new TextDecoder().decode(buffers[0]);
}

function unpack(buffers: DataView[]): Patch {
  return JSON.parse(text(buffers)) as Patch;
}
