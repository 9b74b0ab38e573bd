import { render } from "lit-html";
import { About } from "./about";
import { Controls } from "./controls";
import { make } from "./dom";
import { progressBar, timeLeft } from "./elements";
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
  stopping: "The ranks have a few seconds to end by themselves. Click again to kill them now",
  killing: "The ranks are being killed",
  stopped: "The job is over",
  disconnected: "The kernel that showed the job here has ended: attach() shows it again, with a button that works",
};

const NO_CONTROLS: State["controls"] = { commands: [], tunables: [], feedback: "" };

/** The top of the panel: the job's name, status and progress, the Stop button, and the controls of its training. */
export class Header {
  readonly element = make("div", "na-head");
  #stopper: Stopper;
  #onStop: () => void;
  #controls: Controls;
  #about = new About();

  constructor(stopper: Stopper, redraw: () => void, send: (content: object) => void) {
    this.#stopper = stopper;
    this.#controls = new Controls(send);
    this.#onStop = () => {
      stopper.click();
      redraw();
    };
  }

  update({ head, controls }: State): void {
    const { state } = this.#stopper;
    this.#controls.update(state === "disconnected" ? NO_CONTROLS : controls);
    this.#about.update(head.about);
    const status = state === "disconnected" ? "not connected" : head.paused ? "paused" : head.status;
    const words = [head.summary, timeLeft(head)].filter(Boolean).join(", ");
    render(
      html`<div class="na-top">
        <div class="na-title">
          <span class="na-name">${head.name}</span>
          <span class="na-status">${status}</span>
          <span class="na-place">${head.devices}</span>
        </div>
        <button type="button" class="na-stop" data-state=${state} title=${HINTS[state]}
          ?disabled=${state !== "stop" && state !== "stopping"} @click=${this.#onStop}>${LABELS[state]}</button>
      </div>
      <div class="na-choices">${head.choices}</div>
      ${progressBar("na-overall", "The whole job", head.done, words)}
      <div class="na-times">
        <span class="na-summary">${head.summary}</span>
        <span class="na-elapsed">${head.elapsed}</span>
        <span class="na-left">${timeLeft(head)}</span>
      </div>
      ${this.#controls.element}
      <div class="na-note">${head.note}</div>
      ${this.#about.element}`,
      this.element,
    );
  }
}
