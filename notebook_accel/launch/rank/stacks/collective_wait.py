"""Detects that a rank waits in a collective, by sampling the stack of its main thread ten times a second.

None of torch's functions is wrapped, so collectives cost nothing extra. Waits that no wrapper would see are detected
too: those of DDP, of FSDP and of libraries, which all end in the same few files of torch.

Only a single call that lasts is a wait; a loop of short collectives is not. The next sample recognizes a call by a mark
on its frame, an attribute that only a debugger reads: holding the frame would hold its tensors. A call without a Python
frame (`work.wait()`, and everything in a backward pass) is a wait while the process uses hardly any CPU time.

A collective that runs on a device is in no stack: the thread that needs its result spins in a call such as
`loss.item()`. For that, torch's flight recorder says whether collectives are queued, and whether any has been queued or
completed since the last sample.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from notebook_accel.events import Event, Phase, PhaseChanged
from notebook_accel.launch.rank import flight_recorder
from notebook_accel.launch.rank.stacks import stack_sampler
from notebook_accel.launch.wire import stack_frames
from notebook_accel.launch.wire.constants import REPORT_INTERVAL

WAIT_THRESHOLD = 0.5
"""Seconds after which a call counts as a wait."""
_MOST_CPU_SHARE = 0.05
"""The most CPU time per second of a process that only waits; one that spins uses more."""
_INNERMOST = 12
"""How many frames of a stack are searched for a collective."""
_QUEUED = "a queued collective"


class WaitDetector:
    """Samples one thread, and reports when a wait begins and ends."""

    def __init__(
        self,
        thread: int,
        cpu_time: Callable[[], float] = time.process_time,
        on_sample: Callable[[int, FrameType], None] = lambda thread, frame: None,
    ) -> None:
        self._thread = thread
        self._on_sample = on_sample
        """Receives each sample: the thread's number and its innermost frame."""
        self._cpu_time = cpu_time
        """CPU seconds that this process has used."""
        self._last_sample = 0.0
        self._last_cpu_time = 0.0
        self._since: float | None = None
        """When the present call was first sampled, if it may be a wait."""
        self._position: object = None
        self._outstanding: flight_recorder.Outstanding = ()
        self._is_reported = False

    def sample(self, now: float) -> list[Event]:
        """Samples the thread; returns an event if a wait has begun or ended since the last sample."""
        if now - self._last_sample < REPORT_INTERVAL:
            return []
        frame = stack_sampler.current_frames().get(self._thread)
        name, is_same = ("", False) if frame is None else self._classify(frame, now)
        if frame is not None:
            self._on_sample(self._thread, frame)
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
        return [PhaseChanged(Phase.WAITING, name, stack_frames.innermost_user_frame(stack_sampler.of(frame)))]

    def reset(self) -> None:
        """Forgets the wait: the user's call has ended, which is an event of its own."""
        self._since, self._is_reported = None, False

    def _end_wait(self) -> list[Event]:
        was_reported, self._is_reported = self._is_reported, False
        return [PhaseChanged(Phase.RUNNING)] if was_reported else []

    def _classify(self, frame: FrameType, now: float) -> tuple[str, bool]:
        """The name of what may be a wait, and whether it is the same as at the last sample."""
        cpu_share = self._cpu_share(now)
        stack = stack_sampler.innermost(frame, _INNERMOST)
        name, index = stack_frames.outermost_collective(
            (each.f_code.co_filename, each.f_code.co_name) for each in stack
        )
        if name:
            return name, _mark_frame(stack[index])
        if stack_frames.is_backward(frame.f_code.co_filename, frame.f_code.co_name):
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
        """CPU time of the process per second since the last sample."""
        before, self._last_cpu_time = self._last_cpu_time, self._cpu_time()
        return (self._last_cpu_time - before) / (now - self._last_sample)


def _mark_frame(frame: FrameType) -> bool:
    """Marks a frame of torch; returns whether it was already marked."""
    was_marked = not frame.f_trace_lines
    frame.f_trace_lines = False
    return was_marked


def _is_distributed() -> bool:
    # While the module is being imported, it is in `sys.modules` half-initialized, and not yet an attribute of torch.
    distributed: Any = getattr(sys.modules.get("torch"), "distributed", None)
    return distributed is not None and distributed.is_available() and bool(distributed.is_initialized())
