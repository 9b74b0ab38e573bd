import { About } from "./about";
import { ProgressBar } from "./bar";
import { Controls } from "./controls";
import { make, setAttribute, setText } from "./dom";
import type { State } from "./model";
import type { Stopper, StopState } from "./stopper";

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
  readonly element: HTMLElement;
  #stopper: Stopper;
  #name = make("span", "na-name");
  #devices = make("span", "na-place");
  #status = make("span", "na-status");
  #elapsed = make("span", "na-elapsed");
  #timeLeft = make("span", "na-left");
  #stop = make("button", "na-stop", { type: "button" });
  #overall = new ProgressBar("na-overall", "The whole job");
  #summary = make("span", "na-summary");
  #choices = make("div", "na-choices");
  #note = make("div", "na-note");
  #controls: Controls;
  #about = new About();
  #drawn: State["head"] | undefined;

  constructor(stopper: Stopper, redraw: () => void, send: (content: object) => void) {
    this.#stopper = stopper;
    this.#controls = new Controls(send);
    this.#stop.addEventListener("click", () => {
      stopper.click();
      redraw();
    });
    const title = make("div", "na-title", {}, this.#name, this.#status, this.#devices);
    const times = make("div", "na-times", {}, this.#summary, this.#elapsed, this.#timeLeft);
    const top = make("div", "na-top", {}, title, this.#stop);
    this.element = make("div", "na-head", {}, top, this.#choices, this.#overall.element, times);
    this.element.append(this.#controls.element, this.#note, this.#about.element);
  }

  update({ head, controls }: State): void {
    this.#drawStop();
    this.#controls.update(this.#stopper.state === "disconnected" ? NO_CONTROLS : controls);
    if (head === this.#drawn) return;
    this.#drawn = head;
    setText(this.#name, head.name);
    setText(this.#devices, head.devices);
    setText(
      this.#status,
      this.#stopper.state === "disconnected" ? "not connected" : head.paused ? "paused" : head.status,
    );
    setText(this.#elapsed, head.elapsed);
    setText(this.#timeLeft, head.time_left && `${head.time_left} left`);
    setText(this.#summary, head.summary);
    setText(this.#choices, head.choices);
    setText(this.#note, head.note);
    this.#about.update(head.about);
    this.#overall.update(
      head.done,
      [head.summary, head.time_left && `${head.time_left} left`].filter(Boolean).join(", "),
    );
  }

  #drawStop(): void {
    const state = this.#stopper.state;
    setText(this.#stop, LABELS[state]);
    setAttribute(this.#stop, "data-state", state);
    setAttribute(this.#stop, "title", HINTS[state]);
    this.#stop.disabled = state !== "stop" && state !== "stopping";
  }
}
