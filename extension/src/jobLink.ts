import type { PanelUpdate } from "./model";
import { followOnPage } from "./page";
import { Panel } from "./panel";
import { Questions } from "./questions";
import { Stopper } from "./stopper";
import { Store } from "./store";

/** Carries what a page sends about a job to its kernel, or to the Jupyter server; what comes back goes to `receive`. */
export interface Transport {
  send(message: object): void;
  /** Interrupts the kernel; missing where another process is asked to stop the job. */
  interrupt?(): void;
}

/** A page's connection to one job, whatever carries it: the last state, and the panels that show it. */
export class JobLink {
  /** Missing until the first state has come. */
  store: Store | undefined;
  readonly stopper: Stopper;
  readonly panels = new Set<Panel>();
  #questions: Questions;
  #unfollow: (() => void) | undefined;

  /** @param isOnPage Whether the page belongs to the job, so that its title and a notification tell of it. */
  constructor(
    transport: Transport,
    readonly isOnPage: boolean,
  ) {
    const send = (message: object) => transport.send(message);
    const interrupt = () => transport.interrupt?.();
    this.#questions = new Questions(send);
    this.stopper = new Stopper({ send, interrupt, store: () => this.store as Store });
  }

  receive({ seq = -1, state, patch, ack, replies = [], results = [] }: PanelUpdate, buffers: DataView[] = []): void {
    if (state && this.store) this.store.replace({ seq, state });
    else if (state) {
      this.store = new Store({ seq, state });
      if (this.isOnPage) this.#unfollow = followOnPage(this.store);
    } else if (patch && !this.store?.apply({ seq, patch })) this.#questions.send({ cmd: "ready" });
    if (ack !== undefined) this.stopper.acknowledge(ack);
    for (const [index, reply] of replies.entries()) this.#questions.receive(reply, buffers[index]);
    for (const page of results) for (const panel of this.panels) panel.addResult(page, true);
  }

  /** A new panel of the state, which must have come. */
  open(): Panel {
    const panel = new Panel(this.store as Store, this.stopper, this.#questions);
    this.panels.add(panel);
    return panel;
  }

  close(panel: Panel): void {
    this.panels.delete(panel);
    panel.dispose();
  }

  /** No longer tells of the job on the page. */
  dispose(): void {
    this.#unfollow?.();
  }
}
