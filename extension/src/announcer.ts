import { make, setText } from "./dom";
import { isLive } from "./kernelLost";
import type { State } from "./model";
import type { StopState } from "./stopper";

/** The panel's ARIA live region: announces failures, stalls, pauses and the stop state, but not progress. */
export class Announcer {
  readonly element = make("div", "na-unseen", { role: "status" });
  #failed = 0;
  #noteShown = false;
  #paused = false;
  #stop: StopState = "stop";

  update({ head, ranks }: State, stop: StopState): void {
    const news: string[] = [];
    const first = head.failed[0];
    if (first !== undefined && head.failed.length > this.#failed) {
      news.push(`Rank ${first} failed: ${ranks[first]?.error ?? ""}`);
    }
    // The text of a note may change each second, so announce only its first version.
    if (head.note && !this.#noteShown) news.push(head.note);
    const isPaused = head.state === "paused";
    if (isPaused !== this.#paused && isLive(head)) news.push(isPaused ? "paused" : "running again");
    if (stop !== this.#stop && stop !== "disconnected")
      news.push(stop === "stopped" ? `${head.name} ${head.status}` : stop);
    this.#failed = head.failed.length;
    this.#noteShown = head.note !== "";
    this.#paused = isPaused;
    this.#stop = stop;
    if (news.length > 0) setText(this.element, news.join(". "));
  }
}
