import { Announcer } from "./announcer";
import { Charts } from "./charts";
import { make, setAttribute } from "./dom";
import { Header } from "./header";
import { Ranks } from "./ranks";
import type { Stopper } from "./stopping";
import type { Store } from "./store";

/** Keys that buttons and lists here use, and with which a notebook would edit or leave its cell. */
const OURS = ["Enter", " ", "ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight", "Home", "End", "PageUp", "PageDown"];

/** One picture of a job. Draws once a frame at most, and only while it is in the page. */
export class Panel {
  readonly element: HTMLElement;
  #store: Store;
  #stopper: Stopper;
  #announcer = new Announcer();
  #header: Header;
  #charts = new Charts();
  #ranks: Ranks;
  #frame = 0;
  #moved = false;
  #focused: HTMLElement | undefined;
  #scrolled = new Map<Element, number>();
  #unsubscribe: () => void;
  #output: Element | undefined;

  constructor(store: Store, stopper: Stopper) {
    this.#store = store;
    this.#stopper = stopper;
    const redraw = () => this.#schedule();
    this.#header = new Header(stopper, redraw);
    this.#ranks = new Ranks(redraw);
    this.element = make("section", "na-panel", { role: "region" });
    // Charts come when there are metrics, and push down no more than what is below them.
    this.element.append(this.#header.element, this.#ranks.element, this.#charts.element, this.#announcer.element);
    this.element.addEventListener("keydown", (event) => {
      if (OURS.includes(event.key)) event.stopPropagation();
    });
    this.#remember();
    this.#unsubscribe = store.subscribe(redraw);
    this.#draw(); // what is left is drawn once it is in the page
  }

  /** Goes into a page, or into what soon will. */
  moveInto(parent: HTMLElement): void {
    parent.append(this.element);
    this.#moved = true;
    this.#schedule();
  }

  /** Remembers what the browser forgets of an element that leaves the page. */
  #remember(): void {
    this.element.addEventListener("focusin", (event) => {
      this.#focused = event.target as HTMLElement;
    });
    this.element.addEventListener("focusout", () => {
      // It comes before an element is taken out, too.
      setTimeout(() => {
        const there = this.element.isConnected && !this.#moved;
        const left = there && !this.element.contains(document.activeElement);
        if (left) this.#focused = undefined;
      });
    });
    const onScroll = (event: Event) => {
      const part = event.target as Element;
      if (this.element.isConnected) this.#scrolled.set(part, part.scrollTop);
    };
    this.element.addEventListener("scroll", onScroll, true); // it does not bubble
  }

  #restore(): void {
    this.#moved = false;
    for (const [part, top] of this.#scrolled) {
      if (this.element.contains(part)) part.scrollTop = top;
      else this.#scrolled.delete(part);
    }
    if (this.#focused?.isConnected) this.#focused.focus({ preventScroll: true });
  }

  /**
   * Goes. After a page was loaded again, the front end no longer knows where the launch's output is, and nothing
   * takes the place of a job that ends: its last picture stays there then.
   */
  dispose(): void {
    cancelAnimationFrame(this.#frame);
    if (this.#frame !== 0) while (this.#draw());
    this.#unsubscribe();
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
      if (this.#moved) this.#restore();
      this.#output = this.element.parentElement?.parentElement ?? undefined;
      if (this.#draw()) this.#schedule();
    });
  }

  /** Draws what has changed; returns whether something is left for the next frame. */
  #draw(): boolean {
    const { state, seq } = this.#store;
    const { head } = state;
    setAttribute(this.element, "aria-label", `${head.name} ${head.place}`);
    setAttribute(this.element, "data-status", head.status);
    setAttribute(this.element, "data-layout", head.layout);
    setAttribute(this.element, "data-unheard", this.#store.isHeard ? null : "");
    setAttribute(this.element, "data-brief", head.brief ? "" : null);
    setAttribute(this.element, "data-alone", Object.keys(state.ranks).length === 1 ? "" : null);
    this.#header.update(head);
    this.#announcer.update(state, this.#stopper.state);
    let isLeft = false;
    if (!head.brief) {
      this.#charts.update(state.metrics, head.more);
      isLeft = this.#ranks.update(state);
    }
    if (!isLeft) setAttribute(this.element, "data-seq", String(seq));
    return isLeft;
  }
}
