import { nothing, render } from "lit-html";
import { Controls } from "./controls";
import { make, percent } from "./dom";
import { labButton, progressBar, timeLeft } from "./elements";
import type { JobLink } from "./jobLink";
import { ENDED_WITH_KERNEL, isLive } from "./kernelLost";
import type { State } from "./model";
import type { Stopper, StopState } from "./stopper";
import { html } from "./template";

const LABELS: Record<StopState, string> = {
  stop: "Stop",
  stopping: "Stopping…",
  killing: "Killing…",
  stopped: "Stopped",
  disconnected: "Stop",
};
const HINTS: Record<StopState, string> = {
  stop: "Ask every rank to stop",
  stopping: "The ranks have a few seconds to exit on their own. Click again to kill them now",
  killing: "Killing the ranks",
  stopped: "The job has ended",
  disconnected: "Kernel died or was restarted. Attach shows the job again, as attach() does",
};

/** As in `lab/src/commands.ts`. */
const ATTACH = "notebook-accel:attach";

const NO_CONTROLS: State["controls"] = { commands: [], fields: [], feedback: "" };

/** The top of the panel: how the job is in one line, the Stop button, the controls of its training, and notices. */
export class Header {
  readonly element = make("div", "na-head");
  #stopper: Stopper;
  #onStop: () => void;
  #controls: Controls;
  /** The advice that the user has closed. */
  #closed = "";
  #redraw: () => void;

  constructor({ stopper, send }: JobLink, redraw: () => void) {
    this.#stopper = stopper;
    this.#controls = new Controls(send);
    this.#redraw = redraw;
    this.#onStop = () => {
      stopper.click();
      redraw();
    };
  }

  update({ head, controls }: State): void {
    const { state } = this.#stopper;
    const isOver = state === "stopped" || state === "disconnected";
    const isKernelGone = state === "disconnected" || head.status === ENDED_WITH_KERNEL;
    this.#controls.update(isOver ? NO_CONTROLS : controls);
    const word = state === "disconnected" ? "not connected" : head.state;
    const words = [head.place, head.summary, timeLeft(head)].filter(Boolean).join(", ");
    const close = () => {
      this.#closed = head.advice;
      this.#redraw();
    };
    const advice = html`<div class="na-advice">
      <span>${head.advice}</span>
      <button type="button" class="na-icon" aria-label="Close this advice" @click=${close}>×</button>
    </div>`;
    render(
      html`<div class="na-top">
        <span class="na-name">${head.name}</span>
        <span class="na-status" data-state=${word}>${word}</span>
        <span class="na-done">${isLive(head) ? percent(head.done) : ""}</span>
        <span class="na-doing-now" title=${head.place || nothing}>${head.place}</span>
        <span class="na-times">
          <span class="na-left">${timeLeft(head)}</span>
          <span class="na-elapsed">${head.elapsed}</span>
        </span>
        <button type="button" class="na-stop" data-state=${state} title=${HINTS[state]}
          ?disabled=${state !== "stop" && state !== "stopping"} @click=${this.#onStop}>${LABELS[state]}</button>
        ${isKernelGone ? labButton("na-lab-attach", ATTACH, `Attach to ${head.name}`, head.about.Job ?? "") : nothing}
      </div>
      ${progressBar("na-overall", "The whole job", head.done, words)}
      <div class="na-under">
        <span class="na-place">${head.devices}</span>
        <span class="na-summary">${head.summary}</span>
        ${this.#controls.element}
      </div>
      <div class="na-choices">${head.choices}</div>
      <div class="na-note">${head.note}</div>
      ${head.advice && head.advice !== this.#closed ? advice : nothing}`,
      this.element,
    );
  }
}
