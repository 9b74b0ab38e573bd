"""Samples the main thread's stack many times a second while a request asks for it, and adds up where time goes.

A sample counts for the time since the one before. So a call into C code that holds the GIL, during which no sample can
be taken, counts as long as it takes: the next sample finds its frame on the same line.
"""

from __future__ import annotations

import time
from types import CodeType, FrameType

from notebook_accel.events import Frame, Sampled, SamplesRequested
from notebook_accel.launch.rank.stacks import stack_sampler
from notebook_accel.launch.wire import stack_frames

MOST_CALLS = 20_000
"""The most calls that a report has; the time of further ones counts for those that they are called from."""
MOST_DEPTH = 200
"""The most calls in a stack, from the outermost."""
_MOST_FRAMES = 5_000
"""The most frames of a stack that are read."""


class StackProfiles:
    """The requests of a rank that are being answered. It takes no samples while there are none.

    Args:
        thread: The thread whose stack is sampled.
    """

    def __init__(self, thread: int) -> None:
        self._thread = thread
        self._active: list[_Profile] = []

    def begin(self, request: SamplesRequested, now: float) -> None:
        """Starts to sample."""
        self._active.append(_Profile(request, now))

    def time_to_next(self, now: float, most: float) -> float:
        """Seconds until a sample is due, at most `most`."""
        return max(0.0, min([most, *(profile.due - now for profile in self._active)]))

    def sample(self, now: float) -> list[Sampled]:
        """Takes the samples that are due; returns the reports of the requests that are answered with that."""
        due = [profile for profile in self._active if now >= profile.due]
        if not due:
            return []
        frame = stack_sampler.current_frames().get(self._thread)
        for profile in due:
            profile.add(frame, now)
        over = [profile for profile in due if profile.is_over]
        self._active = [profile for profile in self._active if not profile.is_over]
        return [profile.report() for profile in over]

    def finish(self) -> list[Sampled]:
        """Ends all requests, since the call ends; returns their reports."""
        over, self._active = self._active, []
        return [profile.report() for profile in over]


class _Profile:
    """The tree of calls of one request."""

    def __init__(self, request: SamplesRequested, now: float) -> None:
        self._request = request
        self._interval = 1 / request.rate
        self._began = self._last = now
        self.due = now + self._interval
        self._numbers: dict[tuple[int, int, int], int] = {}
        """The number of each call, by its caller's, and by its code and line. Code is known by its `id`: to hash one
        hashes its constants, which are arbitrary objects in code that was created by a program."""
        self._codes: list[CodeType] = []
        """The code of each call, which also keeps its `id` from being used again."""
        self._microseconds: list[int] = []
        self._idle = self._cpu_seconds = 0.0
        self._samples = 0

    @property
    def is_over(self) -> bool:
        return self._last - self._began >= self._request.seconds

    def add(self, frame: FrameType | None, now: float) -> None:
        began = time.thread_time()
        elapsed, self._last = now - self._last, now
        call = -1
        for code, line in _path(frame):
            key = (call, id(code), line)
            number = self._numbers.get(key)
            if number is None:
                if len(self._numbers) >= MOST_CALLS:
                    break
                number = self._numbers[key] = len(self._numbers)
                self._codes.append(code)
                self._microseconds.append(0)
            call = number
        if call < 0:
            self._idle += elapsed
        else:
            self._microseconds[call] += round(elapsed * 1e6)
        self._samples += 1
        self.due = max(self.due + self._interval, now)  # samples that are late are not made up for
        self._cpu_seconds += time.thread_time() - began

    def report(self) -> Sampled:
        return Sampled(
            self._request.number,
            [
                Frame(code.co_filename, line, code.co_name)
                for code, (_, _, line) in zip(self._codes, self._numbers, strict=True)
            ],
            [caller for caller, _, _ in self._numbers],
            self._microseconds,
            samples=self._samples,
            seconds=self._last - self._began,
            idle=self._idle,
            cpu_seconds=self._cpu_seconds,
        )


def _path(frame: FrameType | None) -> list[tuple[CodeType, int]]:
    """The calls of a stack, the outermost first, as `stack_frames.without_ours` gives them."""
    if frame is None:
        return []
    found: list[tuple[CodeType, int]] = []
    for at in reversed(stack_sampler.innermost(frame, _MOST_FRAMES)):
        code = at.f_code
        if stack_frames.is_ours(code.co_filename) or (not found and stack_frames.begins(code.co_filename)):
            continue
        found.append((code, (at.f_lineno or 0) if stack_frames.is_user_file(code.co_filename) else code.co_firstlineno))
        if len(found) == MOST_DEPTH:
            break
    return found
