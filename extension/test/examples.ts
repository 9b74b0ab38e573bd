import { JobLink } from "../src/jobLink";
import type { Bar, Head, Metric, PanelUpdate, Rank, State } from "../src/model";
import { Store } from "../src/store";

/** A job on `size` ranks. */
export function aState(size: number, head: Partial<Head> = {}): State {
  const ranks: Record<string, Rank> = {};
  for (let rank = 0; rank < size; rank++) ranks[rank] = aRank();
  return {
    head: {
      name: "train()",
      devices: `on ${size} ranks`,
      status: "running",
      state: head.status ?? "running",
      place: "epoch 1/4",
      elapsed: "6 s elapsed",
      time_left: "30 s",
      done: 250,
      choices: "",
      changes: [],
      summary: "",
      about: { Job: "a1b2c3" },
      tab: "25%",
      note: "",
      advice: "",
      layout: size > 16 ? "grid" : "rows",
      brief: false,
      blocking: true,
      stopping: 0,
      failed: [],
      metric_names: [],
      metrics_note: "",
      kernel_lost_note: "",
      ...head,
    },
    controls: { commands: [], fields: [], feedback: "" },
    ranks,
    metrics: {},
  };
}

export function aRank(): Rank {
  return {
    phase: "running",
    host: "",
    detail: "",
    done: 250,
    text: "epoch 1/4",
    time_left: "30 s",
    mark: "",
    error: "",
    is_consequence: false,
    memory: "512 MB, GPU 2.0 GB",
    usage: "GPU 87%, 2.0 GB",
    usage_facts: { CPU: "98% of a core", temperature: "66 °C" },
    warning: "",
    values: { loss: "0.5" },
    bars: { "0": aBar() },
    lines: { "7": "the last line" },
    stack: "",
  };
}

export function aBar(): Bar {
  return {
    depth: 0,
    description: "epoch",
    done: 250,
    amount: "1/4",
    rate: "9.0 s/it",
    time_left: "30 s",
    postfix: "",
    closed: false,
  };
}

export function aMetric(fields: Partial<Metric> = {}): Metric {
  const columns = { x: [0, 10], last: [], mean: [1, 0.5], low: [], high: [], marks: [] };
  return { now: "0.5", range: "", brief: "", facts: ["last at step 10"], by_step: true, ...columns, ...fields };
}

export function aStore(size: number, head: Partial<Head> = {}): Store {
  return new Store({ seq: 0, state: aState(size, head) });
}

/** A connection that has received this, and whose messages go to `send`. */
export function aLink(store?: Store, send: (message: object) => void = () => {}): JobLink {
  const link = new JobLink({ send }, false);
  link.store = store;
  return link;
}

class Signal<Value> {
  #slots = new Set<(sender: unknown, value: Value) => void>();

  connect(slot: (sender: unknown, value: Value) => void): void {
    this.#slots.add(slot);
  }

  disconnect(slot: (sender: unknown, value: Value) => void): void {
    this.#slots.delete(slot);
  }

  emit(value: Value): void {
    for (const slot of this.#slots) slot(this, value);
  }
}

interface FakeKernel {
  interrupt: () => Promise<void>;
  statusChanged: Signal<string>;
  disposed: Signal<void>;
  sendControlMessage?: (message: Record<string, unknown>) => void;
}

/** A model as anywidget passes it to a widget; it records what is sent to the kernel. */
export class FakeModel {
  sent: object[] = [];
  interrupts = 0;
  widget_manager: { kernel: FakeKernel } = {
    kernel: {
      interrupt: async () => {
        this.interrupts += 1;
      },
      statusChanged: new Signal<string>(),
      disposed: new Signal<void>(),
    },
  };
  #fields: Record<string, unknown>;
  #callbacks = new Map<string, ((content: unknown, buffers: DataView[]) => void)[]>();

  constructor(keyframe: PanelUpdate | undefined, fields: Record<string, unknown> = {}) {
    this.#fields = { keyframe, ...fields };
  }

  get(name: string): unknown {
    return this.#fields[name];
  }

  send(content: object): void {
    this.sent.push(content);
  }

  on(event: string, callback: (content: unknown, buffers: DataView[]) => void): void {
    this.#callbacks.set(event, [...(this.#callbacks.get(event) ?? []), callback]);
  }

  #call(event: string, content?: unknown, buffers: DataView[] = []): void {
    for (const callback of this.#callbacks.get(event) ?? []) callback(content, buffers);
  }

  /** The kernel sets a synced field. */
  change(name: string, value: unknown): void {
    this.#fields[name] = value;
    this.#call(`change:${name}`);
  }

  /** The kernel sends the whole state. */
  set(keyframe: PanelUpdate): void {
    this.change("keyframe", keyframe);
  }

  /** Delivers an update from the kernel, and what follows it. */
  receive(update: PanelUpdate, ...buffers: ArrayBuffer[]): void {
    const json = new TextEncoder().encode(JSON.stringify(update)).buffer;
    const parts = [json, ...buffers].map((each) => new DataView(each));
    this.#call("msg:custom", {}, parts);
  }
}

/** Resolves after the next frame has been drawn. */
export function drawn(): Promise<void> {
  return new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(() => resolve())));
}

export function find(root: ParentNode, selector: string): HTMLElement {
  const found = root.querySelector<HTMLElement>(selector);
  if (found === null) throw new Error(`there is no ${selector}`);
  return found;
}
