/** The panel of a job, which the Jupyter server reads from disk: in a tab, and below a cell. */
import { make, setText } from "../../src/dom";
import { followOnPage } from "../../src/page";
import { Panel } from "../../src/panel";
import { Questions } from "../../src/questions";
import { Stopper } from "../../src/stopper";
import { Store } from "../../src/store";
import { RESUME } from "./commands";
import { JobLink } from "./jobLink";
import type { PanelUpdate } from "./model";
import { updatePanel } from "./server";

type State = NonNullable<PanelUpdate["state"]>;

/** What a panel is shown in. */
export interface Place {
  /** Milliseconds until the next request, which the server wants after `pause`; -1 if nobody can see the panel. */
  pace(pause: number): number;
  /** The panel has this answer. */
  answered(update: PanelUpdate, state: State | undefined): void;
  /** There is no answer; returns whether the panel is to say so. */
  failed(error: Error): boolean;
  /** The flame graphs and profiles that the panel begins with, as HTML. */
  kept?: readonly string[];
  /** Keeps another one; missing if nothing can be kept. */
  keep?(page: string): void;
}

export class ServedPanel {
  readonly node = make("div", "na-lab-panel");
  private readonly message = make("p", "na-lab-message", { role: "status" });
  private readonly resume = make("button", "na-lab-command na-lab-resume", { type: "button" });
  private readonly link: JobLink;
  private readonly questions = new Questions((content) => this.link.send(content));
  private store: Store | undefined;
  private panel: Panel | undefined;
  private unfollow: (() => void) | undefined;

  /**
   * @param job - The ID of the job.
   * @param place - What the panel is shown in.
   * @param isOnPage - Whether the page belongs to the job, so that its title and a notification tell of it.
   */
  constructor(
    job: string,
    private readonly place: Place,
    private readonly isOnPage: boolean,
  ) {
    this.message.hidden = true;
    this.resume.dataset.commandlinkerCommand = RESUME;
    this.resume.dataset.commandlinkerArgs = JSON.stringify({ job });
    this.node.append(this.message);
    this.link = new JobLink((...request) => updatePanel(job, ...request), {
      receive: (update) => this.receive(update),
      fail: (error) => {
        if (place.failed(error)) this.say(error.message, true);
      },
      pace: (pause) => place.pace(pause),
    });
  }

  /** Shows a state until the server answers. */
  begin(state: State): void {
    this.replace(-1, state);
  }

  /** Draws what has come while the panel was not in the page, and asks now for what is new. */
  refresh(): void {
    this.panel?.redraw();
    void this.link.refresh();
  }

  send(message: object): void {
    this.link.send(message);
  }

  dispose(): void {
    this.link.dispose();
    this.unfollow?.();
    this.panel?.dispose();
    this.node.remove();
  }

  private receive(update: PanelUpdate): void {
    this.say(update.reading && !this.store ? "Reading what the job has recorded…" : "", false);
    if (update.state) this.replace(update.seq, update.state);
    else if (update.patch) this.store?.apply({ seq: update.seq, patch: update.patch });
    if (update.resume) {
      this.resume.setAttribute("aria-label", update.resume);
      this.message.after(this.resume);
    } else if (update.resume === "") this.resume.remove();
    for (const { id, content, bytes } of update.replies) this.questions.receive(id, [text(content), unpack(bytes)]);
    for (const page of update.results) {
      this.panel?.addResult(page, true);
      this.place.keep?.(page);
    }
    this.place.answered(update, this.store?.state);
  }

  private replace(seq: number, state: State): void {
    if (this.store) {
      this.store.replace({ seq, state });
      return;
    }
    const store = new Store({ seq, state });
    const stopper = new Stopper({
      send: this.questions.send,
      announce: () => undefined,
      interrupt: () => undefined, // the job's own process is asked
      head: () => store.state.head,
      isConnected: () => store.isConnected,
    });
    this.panel = new Panel(store, stopper, this.questions);
    for (const page of this.place.kept ?? []) this.panel.addResult(page, false);
    this.store = store;
    this.panel.moveInto(this.node);
    if (this.isOnPage) this.unfollow = followOnPage(store);
  }

  private say(what: string, isProblem: boolean): void {
    setText(this.message, what);
    this.message.hidden = !what;
    this.message.classList.toggle("na-lab-problem", isProblem);
  }
}

function text(content: string): DataView {
  return new DataView(new TextEncoder().encode(content).buffer);
}

function unpack(base64: string): DataView {
  return new DataView(Uint8Array.from(atob(base64), (each) => each.charCodeAt(0)).buffer);
}
