import { type Choice, load, save, visible } from "./charts/choice";
import { Chooser } from "./charts/chooser";
import { Enlarged } from "./charts/enlarged";
import { SmallChart, shownOf } from "./charts/smallChart";
import type { Look } from "./charts/tools";
import { make, newId, setChildren, setText } from "./dom";
import type { JobLink } from "./jobLink";
import type { State } from "./model";

/** How many charts are drawn in one frame. The first drawing of one takes 5 to 10 ms. */
const CHARTS_PER_FRAME = 1;

/** The metrics of a job: a chart of each, of which the user can enlarge one, choose which to see, and in which order. */
export class Charts {
  readonly element = make("div", "na-metrics", { role: "group", "aria-label": "Metrics" });
  #grid = make("div", "na-charts");
  #note = make("div", "na-more");
  #charts = new Map<string, SmallChart>();
  #chooser: Chooser;
  #enlarged: Enlarged | undefined;
  #link: JobLink;
  #redraw: () => void;
  #look: Look = { log: false, byRank: false, smoothing: 0, earlier: "" };
  #choice: Choice = { order: [], hidden: [] };
  #job: string | undefined;
  #sent = "";
  #state: State | undefined;
  /** The place of the chart that is drawn next. */
  #next = 0;
  #sync = newId();
  /** Draws the charts that had no room until now. */
  #resizes: ResizeObserver;

  constructor(redraw: () => void, link: JobLink) {
    this.#link = link;
    this.#redraw = redraw;
    this.#chooser = new Chooser((choice) => this.#choose(choice));
    this.element.append(this.#grid, this.#chooser.element, this.#note);
    this.#resizes = new ResizeObserver(redraw);
    this.#resizes.observe(this.element);
  }

  /** Draws what has changed; returns whether anything remains for the next frame. */
  update(state: State): boolean {
    const { head, metrics } = state;
    if (this.#job !== head.name) {
      this.#job = head.name;
      this.#choice = load(head.name);
    }
    this.#state = state;
    setText(this.#note, head.metrics_note);
    this.#chooser.update(head.metric_names, this.#choice);
    this.#sendChoice(head.metric_names);
    this.#layOut();
    this.element.hidden = head.metric_names.length === 0;
    this.#enlarged?.update(metrics, head.metric_names, Object.keys(state.ranks).length > 1);
    for (const [name, chart] of this.#charts) {
      const metric = metrics[name];
      if (metric !== undefined) chart.update(metric, () => shownOf(name, metric));
    }
    return this.#drawNext();
  }

  /** Draws the pictures in turn, so that all of them are seen where frames are rare and each brings new values. */
  #drawNext(): boolean {
    const charts = [...this.#charts.values()];
    const first = this.#next;
    let count = 0;
    for (let index = 0; index < charts.length; index += 1) {
      if (count === CHARTS_PER_FRAME) return true;
      const at = (first + index) % charts.length;
      if (!(charts[at] as SmallChart).draw()) continue;
      count += 1;
      this.#next = at + 1;
    }
    return false;
  }

  /** Stops following the page; the pictures stay. */
  dispose(): void {
    this.#resizes.disconnect();
    this.#enlarged?.plot.release();
    for (const { plot } of this.#charts.values()) plot.release();
  }

  /** Adds and removes charts, and puts them in the user's order. */
  #layOut(): void {
    const { head, metrics } = this.#state as State;
    const names = visible(head.metric_names, this.#choice).filter((name) => name in metrics);
    for (const [name, chart] of this.#charts) {
      if (names.includes(name)) continue;
      chart.destroy();
      this.#charts.delete(name);
    }
    for (const name of names) {
      if (this.#charts.has(name)) continue;
      this.#charts.set(name, new SmallChart(name, this.#sync, () => this.#toggle(name)));
    }
    const elements = names.map((name) => (this.#charts.get(name) as SmallChart).element);
    setChildren(this.#grid, this.#enlarged ? [this.#enlarged.element, ...elements] : elements);
  }

  #toggle(name: string): void {
    const before = this.#enlarged?.metric;
    this.#enlarged?.destroy();
    this.#enlarged = undefined;
    if (before !== name) {
      const close = () => this.#toggle(name);
      this.#enlarged = new Enlarged(name, { link: this.#link, look: this.#look, close });
    }
    for (const [each, chart] of this.#charts) chart.isEnlarged = each === this.#enlarged?.metric;
    this.#layOut();
    if (this.#enlarged) this.#enlarged.focus();
    else this.#charts.get(name)?.focus();
    this.#redraw();
  }

  #choose(choice: Choice): void {
    this.#choice = choice;
    save(this.#job ?? "", choice);
    this.#chooser.update(this.#state?.head.metric_names ?? [], choice);
    this.#redraw();
  }

  /** Tells the kernel which charts to draw, if they are not those that it draws by itself. */
  #sendChoice(names: string[]): void {
    const chosen = visible(names, this.#choice);
    const isDefault = chosen.join("\n") === visible(names, { order: [], hidden: [] }).join("\n");
    if (chosen.join("\n") === this.#sent || (isDefault && this.#sent === "")) return;
    this.#sent = chosen.join("\n");
    this.#link.send({ cmd: "charts", metrics: chosen });
  }
}
