/** A tab of the main area with the panel of a job, of any notebook of this server, live while it is visible. */
import type { Message } from "@lumino/messaging";
import { Widget } from "@lumino/widgets";
import { make, setText } from "../../src/dom";
import { Panel } from "../../src/panel";
import { Questions } from "../../src/questions";
import { Stopper } from "../../src/stopper";
import { Store } from "../../src/store";
import { jobsIcon } from "./icons";
import { JobLink } from "./jobLink";
import type { PanelUpdate } from "./model";
import { updatePanel } from "./server";

/** Its colors are those of a light page, as in a notebook that was exported. */
const FRAME = "<!DOCTYPE html><meta charset='utf-8'><style>body{margin:8px;font:13px sans-serif}</style>";

export class JobTab extends Widget {
  private readonly message = make("p", "na-lab-message", { role: "status" });
  private readonly body = make("div", "na-lab-panel");
  private readonly results = make("div", "na-lab-results");
  private readonly link: JobLink;
  private readonly questions = new Questions((content) => this.link.send(content));
  private store: Store | undefined;
  private panel: Panel | undefined;
  private readonly onVisible = () => this.look();

  constructor(readonly job: string) {
    super();
    this.id = `notebook-accel-job-${job}`;
    this.addClass("na-lab-job-tab");
    this.title.label = `Job ${job}`;
    this.title.icon = jobsIcon;
    this.title.closable = true;
    this.node.append(this.message, this.body, this.results);
    this.node.tabIndex = -1;
    this.link = new JobLink((...request) => updatePanel(job, ...request), {
      receive: (update) => this.receive(update),
      fail: (error) => this.say(error.message, true),
      isVisible: () => this.isVisible && !document.hidden,
    });
    document.addEventListener("visibilitychange", this.onVisible);
  }

  override dispose(): void {
    if (this.isDisposed) return;
    document.removeEventListener("visibilitychange", this.onVisible);
    this.link.dispose();
    this.panel?.dispose();
    super.dispose();
  }

  protected override onAfterShow(message: Message): void {
    super.onAfterShow(message);
    this.look();
  }

  protected override onAfterAttach(message: Message): void {
    super.onAfterAttach(message);
    this.look();
  }

  protected override onActivateRequest(message: Message): void {
    super.onActivateRequest(message);
    this.node.focus();
  }

  private look(): void {
    if (this.isVisible && !document.hidden) void this.link.refresh();
  }

  private receive(update: PanelUpdate): void {
    this.say(update.reading ? "Reading what the job has recorded…" : "", false);
    if (update.state) this.replace(update.seq, update.state);
    else if (update.patch) this.store?.apply({ seq: update.seq, patch: update.patch });
    for (const { id, content, bytes } of update.replies) this.questions.receive(id, [text(content), unpack(bytes)]);
    for (const page of update.results) {
      const made = frame(page);
      this.results.prepend(made);
      made.scrollIntoView({ block: "nearest" });
    }
  }

  private replace(seq: number, state: NonNullable<PanelUpdate["state"]>): void {
    if (this.store) {
      this.store.replace({ seq, state });
    } else {
      this.store = new Store({ seq, state });
      this.panel = this.open(this.store);
      this.panel.moveInto(this.body);
    }
    this.title.label = state.head.name;
    this.title.caption = `${state.head.name}: job ${this.job}`;
  }

  private open(store: Store): Panel {
    const stopper = new Stopper({
      send: (content) => this.link.send(content),
      announce: () => undefined,
      interrupt: () => undefined, // the job's own process is asked
      head: () => store.state.head,
      isConnected: () => store.isConnected,
    });
    return new Panel(store, stopper, (content) => this.link.send(content), this.questions);
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

/** A frame whose page has access to nothing outside it. */
function frame(page: string): HTMLElement {
  const made = make("iframe", "na-lab-frame", { sandbox: "allow-scripts", title: "Flame graph or profile" });
  made.srcdoc = FRAME + page;
  return made;
}
