import type { Head, Phase, Rank, State, Status } from "./model";

const LIVE: Status[] = ["starting", "running"];
/** The status of a job that ended because its kernel did. */
export const ENDED_WITH_KERNEL = "ended with its kernel";
const ENDED: Phase[] = ["done", "failed", "stopped"];

/** Whether the job has not ended, as far as the panel knows. */
export function isLive(head: Head): boolean {
  return LIVE.includes(head.status);
}

/** The state of a job once its kernel is gone. Its ranks ended with the kernel unless they run independently of it. */
export function afterKernelLoss(state: State): State {
  const { head } = state;
  const note = head.kernel_lost_note;
  if (note) return { ...state, head: { ...head, time_left: "", note, advice: "" } };
  return {
    ...state,
    head: {
      ...head,
      status: ENDED_WITH_KERNEL,
      state: ENDED_WITH_KERNEL,
      time_left: "",
      note: "",
      advice: "",
    },
    ranks: Object.fromEntries(Object.entries(state.ranks).map(([number, rank]) => [number, ended(rank)])),
  };
}

/** Whether a rank runs no more. */
export function hasEnded(rank: Rank): boolean {
  return ENDED.includes(rank.phase);
}

function ended(rank: Rank): Rank {
  if (hasEnded(rank)) return rank;
  return { ...rank, phase: "stopped", detail: "", time_left: "", mark: "" };
}
