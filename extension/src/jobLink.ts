import { newId } from "./dom";
import type { Answer, PanelUpdate } from "./model";
import { followOnPage } from "./page";
import { Panel } from "./panel";
import { Stopper } from "./stopper";
import { Store } from "./store";

/** Carries what a page sends about a job to its kernel, or to the Jupyter server; what comes back goes to `receive`. */
export interface Transport {
  send(message: object): void;
  /** Interrupts the kernel; missing where another process is asked to stop the job. */
  interrupt?(): void;
}

type Taker<T extends Answer> = (answer: T, bytes: Uint8Array<ArrayBuffer>) => void;

/** A page's connection to one job, whatever carries it: the last state, the panels that show it, and their questions. */
export class JobLink {
  /** Missing until the first state has come. */
  store: Store | undefined;
  readonly stopper: Stopper;
  readonly panels = new Set<Panel>();
  /** Sends a message that has no answer. */
  readonly send: (message: object) => void;
  /** By who asks. */
  #questions = new Map<string, { id: string; take: Taker<Answer> }>();
  #unfollow: (() => void) | undefined;

  /** @param isOnPage Whether the page belongs to the job, so that its title and a notification tell of it. */
  constructor(
    transport: Transport,
    readonly isOnPage: boolean,
  ) {
    this.send = (message) => transport.send(message);
    const interrupt = () => transport.interrupt?.();
    this.stopper = new Stopper({ send: this.send, interrupt, store: () => this.store as Store });
  }

  receive({ seq = -1, state, patch, ack, replies = [], results = [] }: PanelUpdate, buffers: DataView[] = []): void {
    if (state && this.store) this.store.replace({ seq, state });
    else if (state) this.store = new Store({ seq, state });
    else if (patch && !this.store?.apply({ seq, patch })) this.send({ cmd: "ready" });
    if (ack !== undefined) this.stopper.acknowledge(ack);
    for (const [index, reply] of replies.entries()) this.#take(reply, buffers[index]);
    for (const page of results) for (const panel of this.panels) panel.addResult(page, true);
  }

  /**
   * Asks, and calls `take` with the answer and the bytes that follow it, unless `asker` asks again before it has come. It
   * may never come: then the kernel is busy, or gone.
   */
  ask<T extends Answer>(asker: string, content: object, take: Taker<T>): void {
    const id = newId();
    this.#questions.set(asker, { id, take: take as Taker<Answer> });
    this.send({ id, asker, ...content });
  }

  /** No longer waits for an answer. */
  forget(asker: string): void {
    this.#questions.delete(asker);
  }

  /** A new panel of the state, which must have come. */
  open(): Panel {
    const store = this.store as Store;
    const panel = new Panel(this, store);
    this.panels.add(panel);
    if (this.isOnPage) this.#unfollow ??= followOnPage(store);
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

  /** Passes an answer on, which may be for another page. */
  #take(answer: Answer, bytes: DataView | undefined): void {
    for (const [asker, { id, take }] of this.#questions) {
      if (id !== answer.id || bytes === undefined) continue;
      this.#questions.delete(asker);
      const { buffer, byteOffset, byteLength } = bytes;
      take(answer, new Uint8Array(buffer.slice(byteOffset, byteOffset + byteLength) as ArrayBuffer));
    }
  }
}
