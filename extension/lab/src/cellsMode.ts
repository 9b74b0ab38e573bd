/** Where the cells of a notebook run: asked of its kernel, and changed there, without a trace in its history. */
import type { ISessionContext } from "@jupyterlab/apputils";
import type { Kernel, KernelMessage } from "@jupyterlab/services";
import { type ISignal, Signal } from "@lumino/signaling";

/** Nothing is imported: without the module, no cell was ever run on ranks. */
const QUESTION =
  "(lambda mode: mode.ranks_of_cells() if mode else 0)" +
  "(__import__('sys').modules.get('notebook_accel.notebook.cells.every_cell'))";
const PREPARE = "get_ipython().extension_manager.load_extension('notebook_accel')";

export class CellsMode {
  private readonly changedSignal = new Signal<this, void>(this);
  /** The number of ranks that each cell runs on; 0 while cells run in the kernel; `null` if the kernel isn't Python's. */
  ranks: number | null = null;
  /** Whether it is being changed. */
  isChanging = false;

  private asking = 0;
  /** Another browser, too, can change the mode of the notebook's kernel. A busy kernel answers when it is idle. */
  private readonly onFocus = () => {
    if (!this.asking) void this.ask();
  };

  constructor(private readonly session: ISessionContext) {
    window.addEventListener("focus", this.onFocus);
    session.kernelChanged.connect(this.onKernelChanged, this);
    session.statusChanged.connect(this.onStatusChanged, this);
    void session.ready.then(() => this.ask());
  }

  /** The mode, or whether it is being changed, has changed. */
  get changed(): ISignal<this, void> {
    return this.changedSignal;
  }

  dispose(): void {
    window.removeEventListener("focus", this.onFocus);
    Signal.clearData(this);
  }

  /** Asks the kernel. If it dies meanwhile, the answer no longer matters. */
  async ask(): Promise<void> {
    this.asking += 1;
    await this.askKernel().catch(() => undefined);
    this.asking -= 1;
  }

  private async askKernel(): Promise<void> {
    const kernel = this.session.session?.kernel;
    if (!kernel) return this.set(null);
    if ((await kernel.info).language_info.name !== "python") return this.set(null);
    const reply = (await execute(kernel, "", { ranks: QUESTION })).content;
    if (kernel !== this.session.session?.kernel || reply.status !== "ok") return;
    const answer = reply.user_expressions.ranks as { data?: Record<string, string> } | undefined;
    this.set(Number(answer?.data?.["text/plain"] ?? 0));
  }

  /**
   * Has cells run on so many ranks, or in the kernel if it is 0. With `keep`, ranks of another number get the variables
   * of rank 0.
   * @returns What the kernel has to say about it: where cells run now, and notices.
   * @throws Error - If the ranks can't be started, or the kernel doesn't have the package.
   */
  async change(ranks: number, keep = false): Promise<{ where: string; notices: string }> {
    const kernel = this.session.session?.kernel;
    if (!kernel) throw new Error("This notebook has no kernel.");
    const option = keep && this.ranks && this.ranks > 0 && this.ranks !== ranks ? " --keep" : "";
    const line = ranks ? `cells on -n ${ranks}${option}` : "cells off";
    this.isChanging = true;
    this.changedSignal.emit();
    try {
      const said: Record<string, string> = {};
      const code = `${PREPARE}\nget_ipython().run_line_magic('accelerate', '${line}')`;
      const { content } = await execute(kernel, code, {}, (stream) => {
        said[stream.name] = (said[stream.name] ?? "") + stream.text;
      }).catch(() => {
        throw new Error("The kernel died or was restarted before it answered.");
      });
      if (content.status === "error") throw new Error(explain(content.ename, content.evalue));
      return { where: (said.stdout ?? "").trim(), notices: (said.stderr ?? "").trim() };
    } finally {
      this.isChanging = false;
      await this.ask();
      this.changedSignal.emit();
    }
  }

  private set(ranks: number | null): void {
    if (ranks === this.ranks) return;
    this.ranks = ranks;
    this.changedSignal.emit();
  }

  private onKernelChanged(): void {
    this.set(null);
    if (this.session.session?.kernel) void this.ask();
  }

  private onStatusChanged(_: ISessionContext, status: Kernel.Status): void {
    if (["restarting", "autorestarting", "dead"].includes(status)) this.set(this.ranks === null ? null : 0);
  }
}

/** Runs code, and evaluates expressions, without a trace in the kernel's history. */
export async function execute(
  kernel: Kernel.IKernelConnection,
  code: string,
  expressions: Record<string, string>,
  onStream?: (content: KernelMessage.IStreamMsg["content"]) => void,
): Promise<KernelMessage.IExecuteReplyMsg> {
  const future = kernel.requestExecute({
    code,
    silent: true,
    store_history: false,
    stop_on_error: false,
    allow_stdin: false,
    user_expressions: expressions,
  });
  future.onIOPub = (message) => {
    if (message.header.msg_type === "stream") onStream?.((message as KernelMessage.IStreamMsg).content);
  };
  return future.done;
}

function explain(name: string, value: string): string {
  return name === "ModuleNotFoundError"
    ? "The kernel's environment doesn't have notebook-accel. Install it there: %pip install notebook-accel"
    : value || name;
}
