import type { Head, Phase, Rank, State, Status } from "./model";

const LIVE: Status[] = ["starting", "running"];
const ENDED: Phase[] = ["done", "failed", "stopped"];

/** Whether the job has not ended, as far as is known. */
export function isLive(head: Head): boolean {
  return LIVE.includes(head.status);
}

/** What is true of a job when its kernel is gone: its ranks have ended with it, unless they live elsewhere. */
export function withoutKernel(state: State): State {
  const { head } = state;
  if (head.unheard) return { ...state, head: { ...head, left: "", note: head.unheard } };
  return {
    ...state,
    head: { ...head, status: "ended with its kernel", left: "", note: "" },
    ranks: Object.fromEntries(Object.entries(state.ranks).map(([number, rank]) => [number, ended(rank)])),
  };
}

function ended(rank: Rank): Rank {
  if (ENDED.includes(rank.phase)) return rank;
  return { ...rank, phase: "stopped", detail: "", left: "", behind: false };
}
