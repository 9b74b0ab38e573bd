/** A tab of the main area with the panel of a job, of any notebook of this server, live while it is visible. */
import type { Message } from "@lumino/messaging";
import { Widget } from "@lumino/widgets";
import { jobsIcon } from "./icons";
import { ServedPanel } from "./servedPanel";

export class JobTab extends Widget {
  private readonly panel: ServedPanel;
  private readonly onVisible = () => this.look();

  constructor(readonly job: string) {
    super();
    this.id = `notebook-accel-job-${job}`;
    this.addClass("na-lab-job-tab");
    this.title.label = `Job ${job}`;
    this.title.icon = jobsIcon;
    this.title.closable = true;
    const place = {
      pace: (pause: number) => (this.isSeen ? pause : -1),
      answered: (_: unknown, state?: { head: { name: string } }) => {
        if (state) this.name(state.head.name);
      },
      failed: () => true,
    };
    this.panel = new ServedPanel(job, place, false);
    this.node.append(this.panel.node);
    this.node.tabIndex = -1;
    document.addEventListener("visibilitychange", this.onVisible);
  }

  override dispose(): void {
    if (this.isDisposed) return;
    document.removeEventListener("visibilitychange", this.onVisible);
    this.panel.dispose();
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

  private get isSeen(): boolean {
    return this.isVisible && !document.hidden;
  }

  private look(): void {
    if (this.isSeen) this.panel.refresh();
  }

  private name(name: string): void {
    if (this.title.label === name) return;
    this.title.label = name;
    this.title.caption = `${name}: job ${this.job}`;
  }
}
