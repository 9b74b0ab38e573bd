import { nothing, render } from "lit-html";
import { make, newId, OWN_KEYS, setAttribute, setText } from "../dom";
import type { JobLink } from "../jobLink";
import type { ChartReply, EarlierReply, Metric } from "../model";
import { html } from "../template";
import { download, type Key, toCsv, withTitle } from "./download";
import { type Line, linesOf } from "./lines";
import { colorOf, paletteOf } from "./palette";
import { Plot } from "./plot";
import { isExact, ofMetric, type Table, unpack } from "./table";
import { type Look, Tools } from "./tools";
import { entriesAt, stepText, stepTitle, Tooltip } from "./tooltip";
import { clampRange, nearestIndex, zoomed } from "./zoom";

const HEIGHT = 320;
const MOST_POINTS = 1000;
const MOST_EXPORTED = 100_000;
/** How long an answer of the kernel may take until the user is told, and until a file has the values that are drawn. */
const PATIENCE = 1500;
const EXPORT_PATIENCE = 10_000;

interface Host {
  link: JobLink;
  look: Look;
  close: () => void;
}

/** A chart over the whole width, which asks the kernel for what it shows. */
export class Enlarged {
  readonly element: HTMLElement;
  readonly metric: string;
  readonly #host: Host;
  readonly #id = newId();
  readonly plot: Plot;
  readonly #tools: Tools;
  #metrics: string[];
  #keys = make("div", "na-keys");
  #frame: HTMLElement;
  #tooltip = new Tooltip();
  #status = make("div", "na-chart-status", { role: "status" });
  #facts = make("div", "na-facts");
  #shown: Record<string, Metric> = {};
  #names: string[] = [];
  #hasRanks = false;
  #tables: Table[] = [];
  #lines: Line[] = [];
  #range: [number, number] | null = null;
  #isAwaited = false;
  #askAt = 0;
  #isOutdated = true;
  /** The step at the crosshair. */
  #cursor: number | undefined;
  /** Whether the crosshair was last moved with the keyboard: it then stays at its step, otherwise below the pointer. */
  #isKeyed = false;

  constructor(metric: string, host: Host) {
    this.metric = metric;
    this.#metrics = [metric];
    this.#host = host;
    this.#tools = new Tools(host.look, {
      look: (change) => this.#change(change),
      add: (name) => this.#setMetrics([...this.#metrics, name]),
      reset: () => this.#zoom(null),
      csv: () => this.#saveCsv(),
      png: () => this.#savePng(),
    });
    const close = make("button", "na-icon na-close", { type: "button", "aria-label": "Close the chart" }, "✕");
    close.addEventListener("click", host.close);
    this.#frame = make(
      "div",
      "na-plot",
      { role: "slider", tabindex: "0", "aria-valuemin": "0", ...OWN_KEYS },
      this.#tooltip.element,
    );
    this.#frame.addEventListener("keydown", (event) => this.#onKey(event));
    this.#frame.addEventListener("pointermove", () => {
      this.#isKeyed = false;
    });
    const hint = "Drag over the chart to zoom in, double-click to zoom out. Keys: arrows move, + and − zoom, 0 resets";
    setAttribute(this.#frame, "title", hint);
    const head = make("div", "na-enlarged-head", {}, this.#keys, close);
    const label = { role: "group", "aria-label": `${metric}, enlarged`, "data-metric": metric };
    this.element = make("div", "na-enlarged", label, head, this.#tools.element);
    this.element.append(this.#frame, this.#status, this.#facts);
    this.element.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      event.preventDefault(); // otherwise, a dialog around the panel would close
      event.stopPropagation();
      host.close();
    });
    const space = { x: 70, y: 36 };
    const onHover = (index: number | null) => this.#hover(index);
    const onZoom = (range: [number, number] | null) => this.#zoom(range);
    this.plot = new Plot(this.#frame, { height: HEIGHT, space, onHover, onZoom });
    const earlier = `${this.#id}-jobs`;
    host.link.ask<EarlierReply>(earlier, { cmd: "earlier" }, ({ jobs }) => {
      this.#tools.jobs = jobs;
    });
  }

  focus(): void {
    this.#frame.focus({ preventScroll: true });
  }

  destroy(): void {
    this.plot.destroy();
    this.element.remove();
  }

  /**
   * Shows new values, and asks for more if that is due.
   *
   * @param names All metrics, also those that have no chart.
   */
  update(metrics: Record<string, Metric>, names: string[], hasRanks: boolean): void {
    if (metrics !== this.#shown || names !== this.#names) {
      const isChanged = this.#metrics.some((name) => metrics[name] !== this.#shown[name]);
      this.#isOutdated ||= isChanged && !this.#isBefore(metrics);
      this.#shown = metrics;
      this.#names = names;
      this.#hasRanks = hasRanks;
      if (isChanged && !this.#tables.some((table) => table.job === "")) this.#draw();
      if (isChanged) this.#drawFacts();
      this.#updateTools();
    }
    if (this.#isOutdated && !this.#isAwaited && performance.now() >= this.#askAt) this.#ask();
  }

  /** Whether the user looks at steps that are over, so that new values change nothing. */
  #isBefore(metrics: Record<string, Metric>): boolean {
    const end = this.#range?.[1];
    return end !== undefined && this.#metrics.every((name) => end < (metrics[name]?.x.at(-1) ?? Infinity));
  }

  #change(change: Partial<Look>): void {
    Object.assign(this.#host.look, change);
    const needsValues = change.byRank === true || change.earlier !== undefined;
    if (change.earlier !== undefined) this.#tables = this.#tables.filter((table) => table.job === "");
    this.#updateTools();
    this.#draw();
    if (needsValues) this.#ask();
  }

  #setMetrics(names: string[]): void {
    this.#metrics = names;
    this.#tables = this.#tables.filter((table) => names.includes(table.metric));
    this.#updateTools();
    this.#drawFacts();
    this.#draw();
    this.#ask();
  }

  #zoom(range: [number, number] | null): void {
    const whole = this.#extent();
    this.#range = range === null ? null : clampRange(range, whole);
    if (this.#range?.[0] === whole[0] && this.#range[1] === whole[1]) this.#range = null;
    this.#updateTools();
    this.#draw();
    this.#ask();
  }

  #updateTools(): void {
    const addable = this.#names.filter((name) => !this.#metrics.includes(name));
    this.#tools.update(addable, this.#hasRanks, this.#range !== null);
  }

  // Values

  #ask(): void {
    this.#isOutdated = false;
    this.#isAwaited = true;
    this.#askAt = performance.now() + PATIENCE;
    const timer = setTimeout(() => {
      this.#isAwaited = false; // ask again when there is something new
      if (this.#tables.length === 0)
        setText(this.#status, "Loading all points. Until they are here, the chart has fewer.");
    }, PATIENCE);
    const room = Math.max(100, Math.min(MOST_POINTS, this.#frame.clientWidth));
    this.#askFor(this.#id, { points: room, export: false }, (tables, reply) => {
      clearTimeout(timer);
      this.#isAwaited = false;
      this.#take(tables, reply);
    });
  }

  /** Asks for values, as `chart_requests.py` reads it; calls `then` with them, unless `chart` asks again before. */
  #askFor(chart: string, wanted: object, then: (tables: Table[], reply: ChartReply) => void): void {
    const { byRank, earlier } = this.#host.look;
    const shown = { metrics: this.#metrics, range: this.#range, ranks: byRank && this.#hasRanks, earlier };
    this.#host.link.ask<ChartReply>(chart, { cmd: "chart", ...shown, ...wanted }, (reply, { buffer }) =>
      then(unpack(reply.tables, new Float64Array(buffer)), reply),
    );
  }

  #take(tables: Table[], { problem, pause }: ChartReply): void {
    this.#askAt = performance.now() + pause;
    if (tables.length > 0) this.#tables = tables;
    const thinned = tables.some((table) => !isExact(table))
      ? "Each point covers several steps. Zoom in to see every step."
      : "";
    setText(this.#status, [problem, thinned].filter(Boolean).join(". "));
    this.#draw();
  }

  /** The tables to draw: those of the kernel's last answer; of metrics that it has not answered for, the small charts'. */
  #current(): Table[] {
    const answered = this.#tables.filter((table) => this.#metrics.includes(table.metric));
    const own = answered.filter((table) => table.job === "").map((table) => table.metric);
    const others = this.#metrics.filter((name) => !own.includes(name) && this.#shown[name] !== undefined);
    return [...answered, ...others.map((name) => ofMetric(name, this.#shown[name] as Metric))];
  }

  #extent(): [number, number] {
    const tables = this.#current().filter((table) => table.first.length > 0);
    if (tables.length === 0) return [0, 1];
    return [Math.min(...tables.map((table) => table.extent[0])), Math.max(...tables.map((table) => table.extent[1]))];
  }

  // Drawing

  #draw(): void {
    this.#drawKeys();
    const { log, byRank, smoothing } = this.#host.look;
    const tables = this.#current();
    this.#lines = linesOf(tables, { log, byRank: byRank && this.#hasRanks, smoothing });
    const marks = tables.filter((table) => table.job === "").flatMap((table) => table.marks);
    const range = this.#range ?? this.#extent();
    if (this.plot.draw({ lines: this.#lines, marks, range, log })) this.#drawLabel();
  }

  #drawLabel(): void {
    const [low, high] = this.#range ?? this.#extent();
    setAttribute(this.#frame, "aria-label", `Values of ${this.#metrics.join(", ")} at a step`);
    setAttribute(this.#frame, "aria-valuemin", String(low));
    setAttribute(this.#frame, "aria-valuemax", String(high));
    const index = nearestIndex(this.plot.steps(), Math.max(low, Math.min(high, this.#cursor ?? high)));
    this.#describe(index);
    if (this.#isKeyed) queueMicrotask(() => this.plot.moveTo(index)); // once uPlot has drawn
  }

  #keyList(): Key[] {
    const { muted } = paletteOf(this.element);
    return this.#lines
      .filter(({ label, style }) => label !== "" && style !== "faint")
      .map(({ label, color, style }) => ({
        label: style === "earlier" ? label.replace("earlier", this.#tools.jobLabel(this.#host.look.earlier)) : label,
        color: colorOf(color, muted),
      }));
  }

  #drawKeys(): void {
    const { byRank } = this.#host.look;
    const items = this.#metrics.map((name, index) => {
      const color = colorOf(byRank && this.#metrics.length === 1 ? -1 : index);
      const remove = () => this.#setMetrics(this.#metrics.filter((each) => each !== name));
      return html`<span class="na-key-item" title=${name}>
        <span class="na-swatch" .style=${`background: ${color}`}></span><span class="na-key">${name}</span>
        ${this.#metrics.length > 1 ? html`<button type="button" class="na-icon" aria-label="Remove ${name} from the chart" @click=${remove}>✕</button>` : nothing}
      </span>`;
    });
    const label = this.#tools.jobLabel(this.#host.look.earlier);
    const earlier = html`<span class="na-key-item" title=${label}><span class="na-swatch na-dashed"></span>${label}</span>`;
    render(html`${items}${this.#tables.some((table) => table.job !== "") ? earlier : nothing}`, this.#keys);
  }

  #drawFacts(): void {
    const facts = this.#metrics.flatMap((name) => {
      const metric = this.#shown[name];
      if (metric === undefined) return [];
      const words = [metric.now, metric.range, ...metric.facts].filter(Boolean).join(" · ");
      return [html`<div class="na-fact">${this.#metrics.length > 1 ? `${name}: ${words}` : words}</div>`];
    });
    render(facts, this.#facts);
  }

  // The crosshair

  #hover(index: number | null): void {
    if (index === null) {
      this.#tooltip.hide();
      return;
    }
    this.#describe(index);
    const entries = entriesAt(this.#lines, this.plot, index);
    const title = stepTitle(this.#unit(), this.#lines, this.plot.steps()[index] as number);
    this.#tooltip.show(title, entries, this.plot.leftOf(index));
  }

  #describe(index: number): void {
    const step = this.plot.steps()[index];
    if (step === undefined) return;
    this.#cursor = step;
    setAttribute(this.#frame, "aria-valuenow", String(step));
    const title = stepTitle(this.#unit(), this.#lines, step);
    const text = stepText(title, entriesAt(this.#lines, this.plot, index));
    setAttribute(this.#frame, "aria-valuetext", text);
  }

  #unit(): string {
    return this.#current().every((table) => table.byStep) ? "step" : "report";
  }

  #onKey(event: KeyboardEvent): void {
    const steps = this.plot.steps();
    const range = this.#range ?? this.#extent();
    const [first, last] = range.map((step) => nearestIndex(steps, step)) as [number, number];
    const step = this.#cursor ?? range[1];
    const at = nearestIndex(steps, step);
    const moves: Record<string, number> = {
      ArrowLeft: at - 1,
      ArrowRight: at + 1,
      PageDown: at - 10,
      PageUp: at + 10,
      Home: first,
      End: last,
    };
    const to = moves[event.key];
    this.#isKeyed = true;
    if (to !== undefined) this.plot.moveTo(Math.max(first, Math.min(last, to)));
    else if ("+-=".includes(event.key)) {
      this.#zoom(zoomed(range, step, event.key === "-" ? 2 : 0.5));
    } else if (event.key === "0") this.#zoom(null);
    else return;
    event.preventDefault(); // otherwise, the page would scroll
    event.stopPropagation();
  }

  // Files

  #saveCsv(): void {
    const name = `${this.#metrics.join("-")}.csv`;
    const save = (tables: Table[]) => download(new Blob([toCsv(tables)], { type: "text/csv" }), name);
    const timer = setTimeout(() => save(this.#current()), EXPORT_PATIENCE);
    this.#askFor(`${this.#id}-file`, { points: MOST_EXPORTED, export: true }, (tables) => {
      clearTimeout(timer);
      save(tables.length > 0 ? tables : this.#current());
    });
  }

  #savePng(): void {
    const picture = this.plot.canvas;
    if (picture === undefined) return;
    const canvas = withTitle(picture, this.#metrics.join(", "), this.#keyList().slice(0, 8), this.element);
    canvas.toBlob((content) => {
      if (content !== null) download(content, `${this.#metrics.join("-")}.png`);
    });
  }
}
