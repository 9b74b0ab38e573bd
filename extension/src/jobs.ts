import { make, setChildren, setText } from "./dom";
import type { Model } from "./host";
import { KernelLink } from "./kernelLink";

/** A row of the table; see `jobs_table.py`. */
interface Job {
  id: string;
  cells: string[];
  live: boolean;
}

type Send = (cmd: "stop" | "attach", job: string) => void;

/** The row of one job, with buttons to stop it while it runs, and to show it. */
class JobRow {
  readonly element: HTMLElement;
  #cells: HTMLElement[];
  #stop: HTMLButtonElement;

  constructor(job: Job, send: Send) {
    this.#cells = job.cells.map(() => make("td", ""));
    this.#stop = button("na-stop", "Stop", job);
    this.#stop.addEventListener("click", () => {
      this.#stop.disabled = true;
      setText(this.#stop, "Stopping…");
      send("stop", job.id);
    });
    const attach = button("na-attach", "Attach", job);
    attach.addEventListener("click", () => send("attach", job.id));
    const buttons = make("td", "na-buttons", {}, this.#stop, attach);
    this.element = make("tr", "", { "data-job": job.id }, ...this.#cells, buttons);
  }

  update(job: Job): void {
    this.#cells.forEach((cell, index) => {
      setText(cell, job.cells[index] ?? "");
    });
    this.#stop.hidden = !job.live;
  }
}

function button(className: string, label: string, job: Job): HTMLButtonElement {
  return make("button", className, { type: "button", "aria-label": `${label} ${job.id}` }, label);
}

/** The entry point of the table of jobs. anywidget calls `initialize` once, and `render` for each output that shows it. */
export default function widget() {
  let link: KernelLink;

  function initialize({ model }: { model: Model }): () => void {
    link = new KernelLink(model);
    model.on("change:rows", () => link.received());
    link.announce();
    return () => link.close();
  }

  function render({ model, el }: { model: Model; el: HTMLElement }): void {
    const rows = new Map<string, JobRow>();
    const body = make("tbody", "");
    const draw = () => {
      const elements = (model.get("rows") as Job[]).map((job) => {
        const row = rows.get(job.id) ?? new JobRow(job, (cmd, id) => link.send({ cmd, job: id }));
        rows.set(job.id, row);
        row.update(job);
        return row.element;
      });
      setChildren(body, elements);
    };
    const titles = [...(model.get("columns") as string[]), "Actions"];
    const head = titles.map((title) => make("th", "", { scope: "col" }, title));
    const table = make(
      "table",
      "na-jobs",
      { "aria-label": "Jobs" },
      make("thead", "", {}, make("tr", "", {}, ...head)),
    );
    table.append(body);
    el.append(make("section", "na-panel", {}, table));
    model.on("change:rows", draw);
    draw();
  }

  return { initialize, render };
}
