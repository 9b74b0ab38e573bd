"""Asks ranks where they are, while a launch runs: `job.stacks()`, and when nothing moves.

A rank that answers tells it itself. One that can't, because C code holds on to Python's lock, gets a signal that makes
faulthandler write its stacks to its file.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from notebook_accel.events import Stacks, StacksRequested, ThreadStack, to_wire
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.stacks import StacksByRank
from notebook_accel.launch.wire import frames
from notebook_accel.launch.wire.constants import STACKS_SIGNAL
from notebook_accel.launch.wire.stream import Channel

_ANSWERS_WITHIN = 1.0
"""Seconds after which a rank gets the signal. Time enough for any that can run Python, on a busy machine too."""
_WRITES_WITHIN = 0.05
"""Seconds without a further word after which one has written all."""
_GIVES_UP_AFTER = 2.0
_MOST = 2**20


class Reachable(Protocol):
    """Ranks that can be asked."""

    @property
    def channels(self) -> Sequence[Channel] | Mapping[int, Channel]:
        """By rank."""

    def signal(self, rank: int, signum: int) -> None:
        """Sends a signal to one that has a stacks file."""


class StackRequests:
    """Asks the ranks of one attempt, one question at a time. Lives on the thread of its run."""

    def __init__(self, ranks: Reachable, job: Job, files: Mapping[int, int]) -> None:
        self._ranks = ranks
        self._job = job
        self._files = files
        """Descriptors of the ranks' stacks files, by rank."""
        self._pending: deque[Callable[[StacksByRank], object]] = deque()
        self._question: _Question | None = None
        self._number = 0

    def request(self, then: Callable[[StacksByRank], object]) -> None:
        """Has `then` called with what the ranks tell, on the thread of the run. Any thread may wish."""
        self._pending.append(then)

    def look(self, now: float) -> None:
        """Does what there is to do by now."""
        if self._question is None and self._pending:
            self._ask(now)
        if self._question is not None:
            self._chase(self._question, now)

    def hear(self, rank: int, answer: Stacks) -> None:
        """Takes an answer; perhaps to a question that is over."""
        if self._question is not None and answer.number == self._number:
            self._question.told[rank] = answer.threads

    def close(self) -> None:
        """Answers those who still wait, with what there is."""
        if self._question is not None:
            self._conclude(self._question)
        while self._pending:
            self._pending.popleft()({})

    def _ask(self, now: float) -> None:
        self._number += 1
        self._question = _Question(now, {}, {}, list(self._pending))
        self._pending.clear()
        header, _ = to_wire(StacksRequested(self._number))
        for rank in self._alive():
            with contextlib.suppress(OSError, LookupError):  # it has just ended
                self._ranks.channels[rank].send(header)

    def _chase(self, question: _Question, now: float) -> None:
        late = [rank for rank in self._alive() if rank not in question.told]
        if late and now - question.asked < _ANSWERS_WITHIN:
            return
        for rank in [rank for rank in late if rank in self._files]:
            self._read(question, rank, now)
        late = [rank for rank in late if rank not in question.told]
        if not late or now - question.asked > _GIVES_UP_AFTER:
            self._conclude(question)

    def _read(self, question: _Question, rank: int, now: float) -> None:
        """Has a rank write its stacks, and reads them once no more is being written."""
        fd = self._files[rank]
        if rank not in question.written:
            _empty(fd)
            question.written[rank] = (0, now)
            self._ranks.signal(rank, STACKS_SIGNAL)
            return
        size = os.fstat(fd).st_size
        before, since = question.written[rank]
        if size != before:
            question.written[rank] = (size, now)
        elif size and now - since > _WRITES_WITHIN:
            question.told[rank] = frames.parse_dump(os.pread(fd, _MOST, 0).decode(errors="replace"))
            _empty(fd)

    def _conclude(self, question: _Question) -> None:
        self._question = None
        for then in question.askers:
            then(question.told)

    def _alive(self) -> list[int]:
        """The ranks that can be asked."""
        states = enumerate(self._job.ranks)
        return [rank for rank, state in states if state.pid is not None and not (state.exited or state.answered)]


@dataclass
class _Question:
    asked: float
    told: dict[int, Sequence[ThreadStack]]
    written: dict[int, tuple[int, float]]
    """Of those that were made to write: how much each has written, and since when it has been that much."""
    askers: list[Callable[[StacksByRank], object]]


def _empty(fd: int) -> None:
    """The rank writes through the same open file, so it begins at the beginning again."""
    os.ftruncate(fd, 0)
    os.lseek(fd, 0, os.SEEK_SET)
