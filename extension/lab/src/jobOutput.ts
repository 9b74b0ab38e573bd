/** An output of a notebook that names a job: the job's panel, or, if the server doesn't have the job, the HTML beside it. */
import type { IRenderMimeRegistry } from "@jupyterlab/rendermime";
import type { IRenderMime } from "@jupyterlab/rendermime-interfaces";
import type { Message } from "@lumino/messaging";
import { Widget } from "@lumino/widgets";
import { isLive } from "../../src/kernelLost";
import type { State } from "../../src/model";
import type { ServedUpdate } from "./model";
import { ServedPanel } from "./servedPanel";
import { isUnreachable } from "./server";

/** As in `job_output.py`. */
export const MIME = "application/vnd.notebook-accel.job+json";
const JOB_ID = /^[0-9a-f]{12}$/;
/** What is shown instead, the best first. */
const SAVED = ["text/html", "text/plain"];
/** The least pause between two requests while nobody can see the output, in milliseconds. */
const UNSEEN_PAUSE = 1000;
/** How often the server may fail to answer for a job that has just begun, or not find it yet on a disk that is shared. */
const PATIENCE = 5;

/** What an output is about: a job and, until it has ended, the state that the panel begins with. */
export interface Named {
  job: string;
  state?: State;
  /** The flame graphs and profiles that the user has made on the panel, as HTML. */
  results?: string[];
}

/** Where an output is in a notebook. */
export interface Spot {
  notebook: string;
  cell: string;
}

export class JobOutput extends Widget implements IRenderMime.IRenderer {
  private model: IRenderMime.IMimeModel | undefined;
  private job = "";
  private panel: ServedPanel | undefined;
  private saved: IRenderMime.IRenderer | undefined;
  /** Waits for somebody to see the output; the server isn't asked before. */
  private watcher: IntersectionObserver | undefined;
  /** Whether the job was launched below this cell a moment ago; it may have ended since. */
  private isLaunch = false;
  private hasAnswer = false;
  private hasAsked = false;
  private failures = 0;
  private results: string[] = [];
  private readonly onVisible = () => {
    if (!document.hidden) this.refresh();
  };

  /**
   * @param rendermime - Draws what is shown instead of a panel.
   * @param spot - Finds an element of an output.
   */
  constructor(
    private readonly rendermime: IRenderMimeRegistry,
    private readonly spot: (node: HTMLElement) => Spot | undefined,
  ) {
    super();
    this.addClass("na-lab-job-output");
    document.addEventListener("visibilitychange", this.onVisible);
  }

  async renderModel(model: IRenderMime.IMimeModel): Promise<void> {
    this.model = model;
    const { job, state } = named(model);
    if (this.panel && job === this.job) {
      this.keepResults(); // the kernel doesn't have them
      this.refresh();
      return;
    }
    this.clear();
    this.job = job;
    this.results = [...(named(model).results ?? [])];
    if (!state || !JOB_ID.test(job)) await this.showSaved();
    if (JOB_ID.test(job) && !this.isDisposed) this.open(state);
  }

  override dispose(): void {
    if (this.isDisposed) return;
    document.removeEventListener("visibilitychange", this.onVisible);
    this.clear();
    super.dispose();
  }

  protected override onAfterAttach(message: Message): void {
    super.onAfterAttach(message);
    this.refresh();
  }

  private refresh(): void {
    if (!this.watcher) this.panel?.refresh();
  }

  private open(state: Named["state"]): void {
    const panel = new ServedPanel(
      this.job,
      {
        pace: (pause) => (this.isAttached && !document.hidden ? pause : Math.max(pause, UNSEEN_PAUSE)),
        answered: (update, shown) => this.answered(update, shown),
        failed: (error) => this.failed(error),
        kept: this.results,
        keep: (page) => {
          this.results.push(page);
          this.keepResults();
        },
      },
      true,
    );
    this.panel = panel;
    this.isLaunch = state !== undefined;
    if (state) {
      try {
        panel.begin(state);
        this.node.append(panel.node);
      } catch {
        void this.showSaved(); // the notebook is of another version of this package, or was edited
      }
      panel.refresh();
      return;
    }
    // A notebook may have many jobs that have ended.
    this.watcher = new IntersectionObserver((entries) => {
      if (!entries.some((each) => each.isIntersecting)) return;
      this.unwatch();
      panel.refresh();
    });
    this.watcher.observe(this.node);
  }

  private unwatch(): void {
    this.watcher?.disconnect();
    this.watcher = undefined;
  }

  private clear(): void {
    this.unwatch();
    this.panel?.dispose();
    this.panel = undefined;
    this.dropSaved();
    this.hasAnswer = this.hasAsked = false;
    this.failures = 0;
  }

  private answered(update: ServedUpdate, state: Named["state"]): void {
    if (update.output) this.store(update.output);
    if (!state || !this.panel) return;
    if (!this.hasAnswer) {
      this.hasAnswer = true;
      this.dropSaved();
      this.node.append(this.panel.node);
      const spot = this.spot(this.node);
      if (spot && (this.isLaunch || isLive(state.head)))
        this.panel.send({ cmd: "drawn", notebook: spot.notebook, cell: spot.cell });
    }
    // The kernel replaces the state when the job ends, but not on a page that was loaded since, and not if it is gone.
    if (this.model && named(this.model).state && !isLive(state.head) && !this.hasAsked) {
      this.hasAsked = true;
      this.panel.send({ cmd: "output" });
    }
  }

  /** Keeps what shows the ended job where there is no panel. */
  private store(output: Record<string, string>): void {
    if (!this.model || !named(this.model).state) return;
    this.model.setData({ data: { ...this.model.data, ...output, [MIME]: { job: this.job } } });
  }

  private failed(error: Error): boolean {
    if (this.hasAnswer) return true;
    this.failures += 1;
    const hasState = this.model !== undefined && named(this.model).state !== undefined;
    if (hasState && (isUnreachable(error) || this.failures <= PATIENCE)) return isUnreachable(error);
    if (!hasState && isUnreachable(error)) return false;
    this.clear();
    void this.showSaved();
    return false;
  }

  private async showSaved(): Promise<void> {
    const mime = SAVED.find((each) => this.model?.data[each] !== undefined);
    if (!this.model || !mime) return;
    this.saved = this.rendermime.createRenderer(mime);
    this.node.append(this.saved.node);
    await this.saved.renderModel(this.model);
  }

  private dropSaved(): void {
    this.saved?.node.remove(); // which Lumino doesn't know to be attached
    this.saved?.dispose();
    this.saved = undefined;
  }

  /** Keeps flame graphs and profiles in the notebook: for this panel, and once the job has ended, for where there is none. */
  private keepResults(): void {
    if (!this.model) return;
    const { results = [], ...job } = named(this.model);
    if (results.length >= this.results.length) return;
    const html = this.model.data["text/html"];
    const shown = job.state || html === undefined ? {} : { "text/html": [html, ...this.results].join("\n") };
    const data = { ...this.model.data, ...shown, [MIME]: { ...job, results: [...this.results] } };
    this.model.setData({ data: data as object as IRenderMime.IMimeModel["data"] });
  }
}

function named(model: IRenderMime.IMimeModel): Named {
  return model.data[MIME] as unknown as Named;
}
