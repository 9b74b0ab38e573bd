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
from notebook_accel.launch.wire.constants import REPORT_INTERVAL

MOMENT = 0.5
"""Seconds that a call lasts before it counts as a wait."""
_IDLE = 0.05
"""The part of its time that a process computes at most while it does nothing but wait; one that spins computes more."""
_QUEUED = "a queued collective"


class Waiting:
    """Follows one thread."""

    def __init__(self, thread: int, computed: Callable[[], float] = time.process_time) -> None:
        self._thread = thread
        self._computed = computed
        """Seconds of computing that this process has had."""
        self._at = 0.0
        self._used = 0.0
        self._since: float | None = None
        """When the call that it is in was seen first, if that may be a wait."""
        self._call: object = None
        self._under_way: flight_recorder.Counts = ()
        self._told = False

    def look(self, now: float) -> list[Event]:
        """What has changed since the last look, if anything: it waits, or does so no more."""
        if now - self._at < REPORT_INTERVAL:
            return []
        frame = sys._current_frames().get(self._thread)
        name, is_same = ("", False) if frame is None else self._examine(frame, now)
        self._at = now
        if not (name and is_same and self._since is not None):
            self._since = now if name else None
            return self._go_on()
        if self._told or now - self._since < MOMENT:
            return []
        assert frame is not None
        self._told = True
        if name == _QUEUED:
            name = flight_recorder.name_of(self._under_way)
        return [PhaseChanged(Phase.WAITING, name, frames.innermost_user_frame(stack_sampler.of(frame)))]

    def forget(self) -> None:
        """The call has ended, and said so itself."""
        self._since, self._told = None, False

    def _go_on(self) -> list[Event]:
        told, self._told = self._told, False
        return [PhaseChanged(Phase.RUNNING)] if told else []

    def _examine(self, frame: FrameType, now: float) -> tuple[str, bool]:
        """The name of what may be a wait, and whether it is what it was at the last look."""
        computing = self._computing(now)
        stack = _outwards(frame)
        name, index = collective_frames.outermost((each.f_code.co_filename, each.f_code.co_name) for each in stack)
        if name:
            return name, _mark(stack[index])
        if collective_frames.is_backward(frame.f_code.co_filename, frame.f_code.co_name):
            return "backward", _mark(frame) and computing < _IDLE
        here = (frame.f_code, frame.f_lasti)
        was_here, self._call = here == self._call, here
        if not was_here or not _is_distributed():
            return "", False
        if computing < _IDLE:
            called = stack_sampler.called(frame)
            return (called, True) if called.endswith(".wait") else ("", False)
        before, self._under_way = self._under_way, flight_recorder.under_way()
        return (_QUEUED, before == self._under_way) if self._under_way else ("", False)

    def _computing(self, now: float) -> float:
        """The part of its time that the process has computed since the last look."""
        before, self._used = self._used, self._computed()
        return (self._used - before) / (now - self._at)


def _outwards(frame: FrameType) -> list[FrameType]:
    """The innermost frames of a stack."""
    found = [frame]
    while len(found) < 12 and (outer := found[-1].f_back) is not None:
        found.append(outer)
    return found


def _mark(frame: FrameType) -> bool:
    """Marks a frame of torch's; returns whether it was marked already."""
    was_marked = not frame.f_trace_lines
    frame.f_trace_lines = False
    return was_marked


def _is_distributed() -> bool:
    # The attribute is there once the module is: while the rank imports it, it is half a module.
    distributed: Any = getattr(sys.modules.get("torch"), "distributed", None)
    return distributed is not None and distributed.is_available() and bool(distributed.is_initialized())
