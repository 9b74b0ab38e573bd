"""Notices that a rank waits in a collective, by looking at its main thread ten times a second. Runs in the rank.

Nothing is put around torch's functions, so a collective costs what it costs; and what no wrapper would see is seen too:
waits of DDP, of FSDP and of libraries, for they end in the same few files of torch.

Only one and the same call that lasts is a wait: a loop of short collectives is at work. A call is known again by a mark
on its frame, an attribute that only a debugger reads: to keep the frame would keep its tensors. In a call that has no
frame of its own (`work.wait()`, and all that runs in a backward pass) a process waits as long as it hardly computes.

A collective that a device does is in no stack: whoever needs its result spins in a call such as `loss.item()`. There
torch's own recorder tells whether collectives are queued, and that none has been queued or done since the last look.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from notebook_accel.events import Event, Phase, PhaseChanged
from notebook_accel.launch.rank import flight_recorder, stack_sampler
from notebook_accel.launch.wire import collective_frames, frames
from notebook_accel.launch.wire.constants import PACE

WAIT_THRESHOLD = 0.5
"""Seconds that a call lasts before it counts as a wait."""
_MOST_CPU_SHARE = 0.05
"""The part of its time that a process computes at most while it does nothing but wait; one that spins computes more."""
_QUEUED = "a queued collective"


class WaitDetector:
    """Follows one thread."""

    def __init__(self, thread: int, cpu_time: Callable[[], float] = time.process_time) -> None:
        self._thread = thread
        self._cpu_time = cpu_time
        """Seconds of computing that this process has had."""
        self._last_sample = 0.0
        self._last_cpu_time = 0.0
        self._since: float | None = None
        """When the call that it is in was seen first, if that may be a wait."""
        self._position: object = None
        self._outstanding: flight_recorder.Outstanding = ()
        self._is_reported = False

    def sample(self, now: float) -> list[Event]:
        """What has changed since the last look, if anything: it waits, or does so no more."""
        if now - self._last_sample < PACE:
            return []
        frame = sys._current_frames().get(self._thread)
        name, is_same = ("", False) if frame is None else self._classify(frame, now)
        self._last_sample = now
        if not (name and is_same and self._since is not None):
            self._since = now if name else None
            return self._end_wait()
        if self._is_reported or now - self._since < WAIT_THRESHOLD:
            return []
        assert frame is not None
        self._is_reported = True
        if name == _QUEUED:
            name = flight_recorder.name_of(self._outstanding)
        return [PhaseChanged(Phase.WAITING, name, frames.of_user(stack_sampler.of(frame)))]

    def reset(self) -> None:
        """The call has ended, and said so itself."""
        self._since, self._is_reported = None, False

    def _end_wait(self) -> list[Event]:
        was_reported, self._is_reported = self._is_reported, False
        return [PhaseChanged(Phase.RUNNING)] if was_reported else []

    def _classify(self, frame: FrameType, now: float) -> tuple[str, bool]:
        """The name of what may be a wait, and whether it is what it was at the last look."""
        cpu_share = self._cpu_share(now)
        stack = _innermost_frames(frame)
        name, index = collective_frames.outermost((each.f_code.co_filename, each.f_code.co_name) for each in stack)
        if name:
            return name, _mark_frame(stack[index])
        if collective_frames.is_backward(frame.f_code.co_filename, frame.f_code.co_name):
            return "backward", _mark_frame(frame) and cpu_share < _MOST_CPU_SHARE
        position = (frame.f_code, frame.f_lasti)
        is_same_position, self._position = position == self._position, position
        if not is_same_position or not _is_distributed():
            return "", False
        if cpu_share < _MOST_CPU_SHARE:
            called = stack_sampler.called(frame)
            return (called, True) if called.endswith(".wait") else ("", False)
        before, self._outstanding = self._outstanding, flight_recorder.outstanding()
        return (_QUEUED, before == self._outstanding) if self._outstanding else ("", False)

    def _cpu_share(self, now: float) -> float:
        """The part of its time that the process has computed since the last look."""
        before, self._last_cpu_time = self._last_cpu_time, self._cpu_time()
        return (self._last_cpu_time - before) / (now - self._last_sample)


def _innermost_frames(frame: FrameType) -> list[FrameType]:
    """The innermost frames of a stack."""
    found = [frame]
    while len(found) < 12 and (outer := found[-1].f_back) is not None:
        found.append(outer)
    return found


def _mark_frame(frame: FrameType) -> bool:
    """Marks a frame of torch's; returns whether it was marked already."""
    was_marked = not frame.f_trace_lines
    frame.f_trace_lines = False
    return was_marked


def _is_distributed() -> bool:
    # The attribute is there once the module is: while the rank imports it, it is half a module.
    distributed: Any = getattr(sys.modules.get("torch"), "distributed", None)
    return distributed is not None and distributed.is_available() and bool(distributed.is_initialized())
