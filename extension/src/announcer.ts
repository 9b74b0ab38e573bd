import { make, setText } from "./dom";
import type { State } from "./model";
import type { StopState } from "./stopping";

/** Says to a screen reader what nobody should have to look for; bars that move are not among that. */
export class Announcer {
  readonly element = make("div", "na-unseen", { role: "status" });
  #failed = 0;
  #noted = false;
  #stop: StopState = "stop";

  update({ head, ranks }: State, stop: StopState): void {
    const news: string[] = [];
    const first = head.failed[0];
    if (first !== undefined && head.failed.length > this.#failed) {
      news.push(`Rank ${first} failed: ${ranks[first]?.error ?? ""}`);
    }
    // A note that goes on is worded anew each second.
    if (head.note && !this.#noted) news.push(head.note);
    if (stop !== this.#stop && stop !== "unheard") news.push(stop === "stopped" ? `${head.name} ${head.status}` : stop);
    this.#failed = head.failed.length;
    this.#noted = head.note !== "";
    this.#stop = stop;
    if (news.length > 0) setText(this.element, news.join(". "));
  }
}
