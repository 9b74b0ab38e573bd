"""The stacks that the user has requested of single ranks, as text for the panel."""

from __future__ import annotations

import time

from notebook_accel.launch.job import location
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.rank_state import RankState
from notebook_accel.launch.job.stacks import StacksByRank
from notebook_accel.launch.wire import stack_frames

_LONGEST = 8000
"""Characters of a stack; a longer one loses its outermost frames."""


class RequestedStacks:
    """The last requested stack of each rank of a job."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._texts: dict[int, str] = {}
        """By global rank."""

    def request(self, rank: int) -> None:
        """Requests the stack of a global rank. Any thread may call it."""
        self._texts[rank] = f"Asking rank {rank} …"
        self._job.runner.request_stacks(lambda found: self._receive(rank, found))

    def text(self, state: RankState) -> str:
        """The stack of a rank, with when it was taken; empty if there is none, or if the rank has ended."""
        return "" if state.phase.ended else self._texts.get(state.rank, "")

    def _receive(self, rank: int, found: StacksByRank) -> None:
        index, state = next(entry for entry in enumerate(self._job.ranks) if entry[1].rank == rank)
        now = time.strftime("%H:%M:%S")
        threads = found.get(index, ())
        if not threads:
            self._texts[rank] = f"{now}: rank {rank} did not answer"
            return
        at = location.of(state, threads)
        stack = stack_frames.outline(at.frames)
        cut = stack if len(stack) <= _LONGEST else f"…\n{stack[-_LONGEST:].partition(chr(10))[2]}"
        self._texts[rank] = f"{now}: {location.sentence([at])}\n{cut}"
