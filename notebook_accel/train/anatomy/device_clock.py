"""The clock of a rank on a CUDA device: events on its stream, read once the device has passed them.

Python only queues work for the device, so its own clock would show where it waits rather than what the device does.
Between two events lies what the device did, and for how long it had nothing to do, while Python was in that part.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from typing import Any

import torch

from notebook_accel.train.anatomy.step_clock import REST, StepClock

_EVERY = 8
"""One of this many steps is measured, since recording its events takes some 20 µs."""
_FIRST = 16
"""This many steps at the beginning are all measured."""
_MOST_UNREAD = 32
"""Steps whose events the device has not passed yet; of more, the oldest are dropped."""

Mark = tuple[int, Any]
"""A part that ended, and the event at its end."""


class DeviceClock(StepClock):
    """Measures with events on the current stream, and never waits for them.

    Args:
        device: The CUDA device.
    """

    device = "cuda"

    def __init__(self, device: torch.device) -> None:
        self._on = device
        super().__init__()

    def restart(self) -> None:
        super().restart()
        self._marks: list[Mark] | None = None
        """The marks of the step that is measured; `None` in one that is not."""
        self._unread: deque[tuple[list[Mark], int, int, int]] = deque()
        self._spare: list[Any] = []
        self._measured = self._rows_read = self._backwards_read = self._syncs_read = 0

    def enter(self, part: int) -> None:
        if self._marks is not None:
            self._marks.append((self.part, self._recorded()))
        self.part = part

    def skip(self) -> None:
        if self._marks is not None:
            self._spare += [event for _, event in self._marks]
            self._marks = [(REST, self._recorded())]

    def _now(self) -> int:
        return time.perf_counter_ns()

    def _recorded(self) -> Any:
        event = self._spare.pop() if self._spare else self._new_event()
        event.record(torch.cuda.current_stream(self._on))
        return event

    def _new_event(self) -> Any:
        return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]

    def _begin(self) -> None:
        super()._begin()
        self._marks = [(REST, self._recorded())]

    def _complete(self) -> None:
        if self._marks is not None:
            self._unread.append((self._marks, self.rows, self.backwards, self.syncs))
            if len(self._unread) > _MOST_UNREAD:
                self._spare += [event for _, event in self._unread.popleft()[0]]
        self.rows = self.backwards = self.syncs = 0
        self._read()
        is_next = self._steps < _FIRST or self._steps % _EVERY == 0
        self._marks = [(REST, self._recorded())] if is_next else None

    def _read(self) -> None:
        """Adds up the steps that the device has finished."""
        while self._unread and self._unread[0][0][-1][1].query():
            marks, rows, backwards, syncs = self._unread.popleft()
            for (_, start), (part, end) in itertools.pairwise(marks):
                self._sums[part] += int(start.elapsed_time(end) * 1e6)
            self._spare += [event for _, event in marks]
            self._measured += 1
            self._rows_read += rows
            self._backwards_read += backwards
            self._syncs_read += syncs
        if self._measured:
            self._done = (
                self._steps,
                self._measured,
                self._rows_read,
                self._backwards_read,
                self._syncs_read,
                *self._sums,
            )
