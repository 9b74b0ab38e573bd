/** The panel of a job, which the Jupyter server reads from disk: in a tab, and below a cell. */
import { make, setText } from "../../src/dom";
import { JobLink } from "../../src/jobLink";
import type { State } from "../../src/model";
import type { Panel } from "../../src/panel";
import { RESUME } from "./commands";
import type { ServedUpdate } from "./model";
import { updatePanel } from "./server";
import { ServerTransport } from "./serverTransport";

/** What a panel is shown in. */
export interface Place {
  /** Milliseconds until the next request, which the server wants after `pause`; -1 if nobody can see the panel. */
  pace(pause: number): number;
  /** The panel has this answer. */
  answered(update: ServedUpdate, state: State | undefined): void;
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
  private readonly transport: ServerTransport;
  private readonly link: JobLink;
  private panel: Panel | undefined;

  /**
   * @param job - The ID of the job.
   * @param place - What the panel is shown in.
   * @param isOnPage - Whether the page belongs to the job, so that its title and a notification tell of it.
   */
  constructor(
    job: string,
    private readonly place: Place,
    isOnPage: boolean,
  ) {
    this.message.hidden = true;
    this.resume.dataset.commandlinkerCommand = RESUME;
    this.resume.dataset.commandlinkerArgs = JSON.stringify({ job });
    this.node.append(this.message);
    this.transport = new ServerTransport((...request) => updatePanel(job, ...request), {
      seq: () => this.link.store?.seq ?? -1,
      receive: (update) => this.receive(update),
      fail: (error) => {
        if (place.failed(error)) this.say(error.message, true);
      },
      pace: (pause) => place.pace(pause),
    });
    this.link = new JobLink(this.transport, isOnPage);
  }

  /** Shows a state until the server answers. */
  begin(state: State): void {
    this.take({ state });
  }

  /** Draws what has come while the panel was not in the page, and asks now for what is new. */
  refresh(): void {
    this.panel?.redraw();
    void this.transport.refresh();
  }

  send(message: object): void {
    this.transport.send(message);
  }

  dispose(): void {
    this.transport.dispose();
    this.link.dispose();
    if (this.panel) this.link.close(this.panel);
    this.node.remove();
  }

  private receive(update: ServedUpdate): void {
    this.say(update.reading && !this.panel ? "Reading what the job has recorded…" : "", false);
    this.take(update, update.buffers.map(unpack));
    if (update.resume) {
      this.resume.setAttribute("aria-label", update.resume);
      this.message.after(this.resume);
    } else if (update.resume === "") this.resume.remove();
    for (const page of update.results ?? []) this.place.keep?.(page);
    this.place.answered(update, this.link.store?.state);
  }

  private take(...update: Parameters<JobLink["receive"]>): void {
    this.link.receive(...update);
    if (this.panel || !this.link.store) return;
    this.panel = this.link.open();
    for (const page of this.place.kept ?? []) this.panel.addResult(page, false);
    this.panel.moveInto(this.node);
  }

  private say(what: string, isProblem: boolean): void {
    setText(this.message, what);
    this.message.hidden = !what;
    this.message.classList.toggle("na-lab-problem", isProblem);
  }
}

function unpack(base64: string): DataView {
  return new DataView(Uint8Array.from(atob(base64), (each) => each.charCodeAt(0)).buffer);
}
