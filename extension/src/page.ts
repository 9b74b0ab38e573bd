import { isLive } from "./kernelLost";
import { chosen, onChoice } from "./preferences";
import type { Store } from "./store";

/** The least time between two changes of the tab's title, in milliseconds. */
const INTERVAL = 1000;

/**
 * Puts how a job is getting on before the title of the browser's tab. The front end sets that title, too, when the user
 * opens another file: what it has set last is what comes back.
 */
class TabTitle {
  #shown: { prefix: string; title: string } | undefined;

  /** Shows this text, or what the title was if it is empty. */
  show(text: string): void {
    const own = this.#shown !== undefined && document.title === this.#shown.title;
    const rest = own ? (this.#shown as { title: string; prefix: string }).title.slice(this.#length) : document.title;
    if (!text) {
      if (own) document.title = rest;
      this.#shown = undefined;
      return;
    }
    const prefix = `${text} — `;
    const title = prefix + rest;
    if (document.title !== title) document.title = title;
    this.#shown = { prefix, title: document.title };
  }

  get #length(): number {
    return this.#shown?.prefix.length ?? 0;
  }
}

const title = new TabTitle();
/** The jobs that run on this page, the last one to begin last: that one is in the title. */
const running: Store[] = [];

/**
 * Shows in the tab's title how a job is getting on, and a notification when it ends, as far as the user has chosen it.
 * Returns a function that ends this.
 */
export function followOnPage(store: Store): () => void {
  let timer = 0;
  let wasLive = isLive(store.state.head);
  const isRunning = () => isLive(store.state.head) && store.isConnected;
  const draw = () => {
    timer = 0;
    const last = running.at(-1);
    title.show(last !== undefined && chosen("tab-title") ? last.state.head.tab : "");
  };
  const update = () => {
    const at = running.indexOf(store);
    if (isRunning() && at < 0) running.push(store);
    if (!isRunning() && at >= 0) running.splice(at, 1);
    if (wasLive && !isLive(store.state.head) && store.isConnected) notify(store);
    wasLive = isLive(store.state.head);
    if (!isRunning()) draw();
    else if (timer === 0) timer = window.setTimeout(draw, INTERVAL);
  };
  const stop = [store.subscribe(update), onChoice(draw)];
  update();
  return () => {
    for (const each of stop) each();
    clearTimeout(timer);
    const at = running.indexOf(store);
    if (at >= 0) running.splice(at, 1);
    draw();
  };
}

function notify(store: Store): void {
  const { head } = store.state;
  if (!chosen("notify") || !canNotify() || Notification.permission !== "granted") return;
  try {
    new Notification(head.name, { body: `${head.status} · ${head.elapsed}` });
  } catch {
    // Some browsers only let service workers notify.
  }
}

/** Whether the browser can notify from this page: it must be served from this machine, or over https. */
export function canNotify(): boolean {
  return typeof Notification !== "undefined" && window.isSecureContext;
}
