import { About } from "./about";
import { Announcer } from "./announcer";
import { Charts } from "./charts";
import { make, setAttribute, setText } from "./dom";
import { Header } from "./header";
import type { JobLink } from "./jobLink";
import { isLive } from "./kernelLost";
import { LogView } from "./logs/logView";
import { Ranks } from "./ranks";
import { Results } from "./results";
import type { Stopper } from "./stopper";
import type { Store } from "./store";
import { Tabs } from "./tabs";

const PROFILE_TAB = 2;
const EVENTS_TAB = 3;

/** Keys that the panel handles, and with which a notebook would otherwise edit or leave the cell. */
const KEYS = ["Enter", " ", "ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight", "Home", "End", "PageUp", "PageDown"];

/** One view of a job. Draws at most once a frame, and only while it is in the page. */
export class Panel {
  readonly element: HTMLElement;
  #store: Store;
  #stopper: Stopper;
  #announcer = new Announcer();
  #header: Header;
  #charts: Charts;
  #ranks: Ranks;
  #log: LogView;
  #results = new Results();
  #events = make("div", "na-events");
  #about = new About();
  #tabs: Tabs;
  #frame = 0;
  #moved = false;
  #focused: HTMLElement | undefined;
  #scrolled = new Map<Element, number>();
  #unsubscribe: () => void;
  #output: Element | undefined;

  constructor(link: JobLink, store: Store) {
    this.#store = store;
    this.#stopper = link.stopper;
    const redraw = () => this.#schedule();
    this.#header = new Header(link, redraw);
    const title = () => store.state.head.name;
    this.#ranks = new Ranks(redraw, link, title);
    const log = new LogView({ rank: null, title }, link, false);
    this.#log = log;
    this.#tabs = new Tabs("Job details", [
      { label: "Ranks", element: this.#ranks.element },
      { label: "Logs", element: log.element, onChoose: (isChosen) => (log.element.open = isChosen) },
      { label: "Profile", element: this.#results.element },
      { label: "Events", element: this.#events },
      { label: "About", element: this.#about.element },
    ]);
    this.#charts = new Charts(redraw, link);
    this.element = make("section", "na-panel", { role: "region" });
    this.element.append(this.#header.element, this.#charts.element, this.#tabs.element, this.#announcer.element);
    this.element.addEventListener("keydown", (event) => {
      if (KEYS.includes(event.key)) event.stopPropagation();
    });
    this.#saveFocusAndScroll();
    this.#unsubscribe = store.subscribe(redraw);
    this.#draw(); // the rest is drawn once the panel is in the page
  }

  /** Moves the panel into `parent`, which need not be in the page yet. */
  moveInto(parent: HTMLElement): void {
    parent.append(this.element);
    this.#moved = true;
    this.#schedule();
  }

  /**
   * Adds a flame graph or a profile.
   * @param page What it shows, as HTML.
   * @param isNew Whether the user has just asked for it.
   */
  addResult(page: string, isNew: boolean): void {
    this.#results.add(page);
    this.#tabs.setCount(PROFILE_TAB, this.#results.count);
    if (!isNew) return;
    this.#tabs.choose(PROFILE_TAB);
    this.#results.element.scrollIntoView({ block: "nearest" });
  }

  /** Draws what has changed while the panel was not in the page. */
  redraw(): void {
    this.#schedule();
  }

  /** Saves the focus and the scroll positions, which the browser drops when an element leaves the page. */
  #saveFocusAndScroll(): void {
    this.element.addEventListener("focusin", (event) => {
      this.#focused = event.target as HTMLElement;
    });
    this.element.addEventListener("focusout", () => {
      // Also fires just before the panel is removed from the page; the focus is kept then.
      setTimeout(() => {
        const inPage = this.element.isConnected && !this.#moved;
        if (inPage && !this.element.contains(document.activeElement)) this.#focused = undefined;
      });
    });
    const onScroll = (event: Event) => {
      const part = event.target as Element;
      if (this.element.isConnected) this.#scrolled.set(part, part.scrollTop);
    };
    this.element.addEventListener("scroll", onScroll, true); // scroll events do not bubble
  }

  #restoreFocusAndScroll(): void {
    this.#moved = false;
    for (const [part, top] of this.#scrolled) {
      if (this.element.contains(part)) part.scrollTop = top;
      else this.#scrolled.delete(part);
    }
    if (this.#focused?.isConnected) this.#focused.focus({ preventScroll: true });
  }

  /**
   * Removes the panel. After a page reload, the front end cannot update the launch's output, so nothing replaces the panel
   * when the job ends: put it back then, in its last state.
   */
  dispose(): void {
    cancelAnimationFrame(this.#frame);
    if (this.#frame !== 0) while (this.#draw());
    this.#unsubscribe();
    this.#charts.dispose();
    this.#log.dispose();
    this.element.remove();
    const output = this.#output;
    setTimeout(() => {
      if (output?.isConnected && output.childElementCount === 0) output.after(this.element);
    });
  }

  #schedule(): void {
    if (this.#frame !== 0) return;
    this.#frame = requestAnimationFrame(() => {
      this.#frame = 0;
      if (!this.element.isConnected) return;
      if (this.#moved) this.#restoreFocusAndScroll();
      this.#output = this.element.parentElement?.parentElement ?? undefined;
      if (this.#draw()) this.#schedule();
    });
  }

  /** Draws what has changed; returns whether anything remains for the next frame. */
  #draw(): boolean {
    const { state, seq } = this.#store;
    const { head } = state;
    setAttribute(this.element, "aria-label", `${head.name} ${head.devices}`);
    setAttribute(this.element, "data-status", head.status);
    setAttribute(this.element, "data-state", head.state);
    setAttribute(this.element, "data-layout", head.layout);
    setAttribute(this.element, "data-over", isLive(head) ? null : ""); // no time is left
    setAttribute(this.element, "data-disconnected", this.#store.isConnected ? null : "");
    setAttribute(this.element, "data-brief", head.brief ? "" : null);
    setAttribute(this.element, "data-alone", Object.keys(state.ranks).length === 1 ? "" : null);
    this.#header.update(state);
    this.#announcer.update(state, this.#stopper.state);
    let hasMore = false;
    this.#tabs.element.hidden = head.brief;
    this.#about.update(head.about);
    if (!head.brief) {
      setText(
        this.#events,
        head.changes.join("\n") || "No events yet. Restarts and the changes that you make appear here.",
      );
      this.#tabs.setCount(EVENTS_TAB, head.changes.length);
      hasMore = this.#ranks.update(state);
      this.#log.update({});
      hasMore = this.#charts.update(state) || hasMore;
    }
    if (!hasMore) setAttribute(this.element, "data-seq", String(seq));
    return hasMore;
  }
}
