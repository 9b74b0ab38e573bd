"""Starts torch's profiler at the end of a training step, stops it some steps later, and replies with the trace.

The profiler belongs to the thread that trains, so it is started and stopped there; all else runs on other threads. One
request at a time is answered.
"""

from __future__ import annotations

import contextlib
import gc
import gzip
import mmap
import os
import re
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from notebook_accel import events, rank_local
from notebook_accel.events import Event, Profiled, ProfileRequested
from notebook_accel.events.control import CountedOptimizer
from notebook_accel.launch.system import own_process
from notebook_accel.launch.wire.constants import STEP_MARK

_OTHER = "another profiler of torch is active there: wait until it has ended"
_PAUSED = "it is paused; resume it to profile its steps"
Callback = Callable[[], None]
_EVENT = re.compile(rb"\n  \{\n.*?\n  \}(?=[,\s])", re.DOTALL)
_DURATION = re.compile(rb'"dur": ([0-9.]+)')
_FLOW = re.compile(rb'"ph": "[sft]"')
_LEVEL = 1
"""The compression; a higher level takes several times as long, and saves little."""
_READINGS = 8


class StepProfiles:
    """Answers requests for profiles.

    Args:
        thread: The thread that trains.
        send: Sends an event to the driver; may be called on any thread.
    """

    def __init__(self, thread: int, send: Callable[[Event], object]) -> None:
        self._send = send
        self._boundaries = StepBoundaries(thread)
        self._request: ProfileRequested | None = None
        """The request that is being answered, until the profiler has stopped."""
        self._deadline = 0.0
        self._recording: _Recording | None = None
        self._export: threading.Thread | None = None
        """Writes the last trace, and replies with it."""
        self._is_writing = False
        """Whether it has yet to reply. The next request may come before the thread has ended."""
        self._changing = threading.Lock()
        """Held while the request changes."""

    @property
    def is_active(self) -> bool:
        """Whether a request is being answered."""
        return self._request is not None

    # On the channel thread

    def begin(self, request: ProfileRequested, now: float) -> None:
        """Takes a request. `arm` has to be called at the step that it names, if it does."""
        if rank_local.alone is None:
            self._refuse(request, "several ranks share its process, where torch's profiler can't tell them apart")
        elif self._request is not None or self._is_writing:
            self._refuse(request, "it is being profiled already: wait until that profile is there")
        elif events.training_is_paused():
            self._refuse(request, _PAUSED)
        else:
            self._deadline = now + request.seconds
            self._request = request
            if request.step < 0:
                self.arm()

    def poll(self, now: float) -> None:
        """Looks whether a request waits too long."""
        if self._request is None:
            return
        self._boundaries.register()
        if now < self._deadline:
            return
        with self._changing:
            request, recording = self._request, self._recording
            if request is None or (recording is not None and recording.is_late):
                return
            if recording is None:
                self._end()
            else:
                recording.is_late = True  # the other thread stops the profiler, at the end of the next step
        if events.training_is_paused():
            self._refuse(request, _PAUSED)
            return
        done = 0 if recording is None else recording.steps
        found = f"only {done} of {request.steps} steps ended" if done else "no training step ended"
        self._refuse(request, f"{found} within {request.seconds:g} s", is_late=True)

    # On the thread that trains

    def arm(self) -> None:
        """Has the profiler started at the end of the next step, if a request is being answered."""
        with self._changing:
            if self._request is not None and not self._boundaries.is_watched:
                self._boundaries.watch(self._on_boundary)

    def on_call_end(self) -> None:
        """Replies with what there is, since the call ends."""
        with self._changing:
            request, recording = self._request, self._recording
            if request is not None and recording is None:
                self._end()
        if request is not None:
            if recording is None:
                self._refuse(request, "its function ended before the next training step did")
            else:
                self._stop("its function ended")
        if self._export is not None:
            self._export.join()

    def _on_boundary(self) -> None:
        """A step has ended. Whatever fails here must not end the training."""
        try:
            with self._changing:
                request, recording = self._request, self._recording
                if request is not None and recording is None:
                    if is_active():
                        self._end()
                        self._refuse(request, _OTHER)
                    else:
                        self._recording = _Recording(lambda: self._stop("its code started a profiler of its own"))
                    return
            if request is not None and recording is not None:
                recording.mark()
                if recording.is_late or recording.steps >= request.steps:
                    self._stop()
        except Exception as error:
            self._fail(error)

    def _stop(self, early: str = "") -> None:
        """Stops the profiler, and has another thread write the trace.

        Args:
            early: Why it ends before all steps are done.
        """
        with self._changing:
            request, recording = self._request, self._recording
            self._end()
        if request is None or recording is None:
            return
        try:
            recording.stop()
        except Exception as error:
            self._refuse(request, _failure(error))
            return
        if recording.is_late:
            return
        if not recording.steps:
            self._refuse(request, f"{early} before a whole training step was recorded")
            return
        note = f"{early} after {recording.steps} of {request.steps} steps" if early else ""
        self._is_writing = True
        reply = partial(self._reply, request, recording, note)
        self._export = own_process.start_thread_if_allowed(reply, "notebook-accel profile")
        if self._export is None:
            reply()

    def _fail(self, error: Exception) -> None:
        with self._changing:
            request, recording = self._request, self._recording
            self._end()
        if recording is not None:
            with contextlib.suppress(Exception):
                recording.stop()
        if request is not None:
            self._refuse(request, _failure(error))

    # On any thread

    def _end(self) -> None:
        self._request = self._recording = None
        self._boundaries.unwatch()

    def _refuse(self, request: ProfileRequested, error: str, *, is_late: bool = False) -> None:
        self._send(Profiled(request.number, error=error, is_late=is_late))

    def _reply(self, request: ProfileRequested, recording: _Recording, note: str) -> None:
        try:
            trace, shortened = recording.trace(request.most_bytes)
        except Exception as error:  # such as a full disk
            reply = Profiled(request.number, error=_failure(error))
        else:
            notes = "; ".join(each for each in (note, shortened) if each)
            times = recording.boundaries
            reply = Profiled(request.number, note=notes, boundaries=times, at=recording.at, trace=[trace])
        self._is_writing = False
        self._send(reply)


class _Recording:
    """A run of torch's profiler. It is made, marked and stopped on the thread that trains.

    Args:
        end: Stops it, where a profiler of the user's code begins.
    """

    def __init__(self, end: Callable[[], None]) -> None:
        torch: Any = sys.modules["torch"]
        self._record_function = torch.autograd.profiler.record_function
        self._profiler = torch.profiler.profile()
        self._guard = Guard(end)
        self.boundaries: list[int] = []
        """When each step ended, in nanoseconds on the monotonic clock; the first is where the recording begins."""
        self.is_late = False
        """Whether the request has been answered without it."""
        with _without_kineto_log():
            self._profiler.start()
        self._guard.__enter__()
        self.mark()
        self.at = _time_of_day(self.boundaries[0])

    @property
    def steps(self) -> int:
        """The steps that it has so far."""
        return len(self.boundaries) - 1

    def mark(self) -> None:
        """Writes down, in the trace and here, that a step has ended: that also tells how the two clocks differ."""
        before = time.monotonic_ns()
        with self._record_function(STEP_MARK):
            after = time.monotonic_ns()
        self.boundaries.append((before + after) // 2)

    def stop(self) -> None:
        """Stops it."""
        self._guard.__exit__()
        self._profiler.stop()

    def trace(self, most_bytes: int) -> tuple[bytes, str]:
        """The trace, compressed, and a note on what is left out."""
        with tempfile.TemporaryDirectory(prefix="notebook-accel-") as folder:
            path = Path(folder, "trace.json")
            self._profiler.export_chrome_trace(str(path))
            return compressed(path, most_bytes, STEP_MARK.encode())


def _time_of_day(moment: int) -> float:
    """Seconds since the epoch at a moment of the monotonic clock, as exactly as the quickest of some readings shows."""
    readings = [(time.monotonic_ns(), time.time_ns(), time.monotonic_ns()) for _ in range(_READINGS)]
    before, now, after = min(readings, key=lambda reading: reading[2] - reading[0])
    return (now + moment - (before + after) // 2) / 1e9


@contextlib.contextmanager
def _without_kineto_log() -> Iterator[None]:
    """Has the profiler's library, which reads this when it is first used, not write each start and stop to stderr."""
    variable = "KINETO_LOG_LEVEL"
    if variable in os.environ:
        yield
        return
    os.environ[variable] = "6"
    try:
        yield
    finally:
        os.environ.pop(variable, None)


def _failure(error: Exception) -> str:
    return f"torch's profiler failed there: {type(error).__name__}: {error}"


class StepBoundaries:
    """Calls a function at the end of each step of one thread, as long as one is set.

    A step ends when the optimizer has stepped, in any loop that uses torch's optimizers. A hook of all of them tells
    it. It is registered with the first request, and stays registered, since the loop over the hooks that calls it can't
    lose one: from then on, it takes 0.1 µs a step.

    Args:
        thread: The thread that trains.
    """

    def __init__(self, thread: int) -> None:
        self._thread = thread
        self._callback: Callback | None = None
        self._is_registered = False
        self._counted = CountedOptimizer()

    @property
    def is_watched(self) -> bool:
        """Whether a function is set."""
        return self._callback is not None

    def watch(self, callback: Callback) -> None:
        """Has the function called on that thread from the next end of a step on. Any thread may call this."""
        self._counted = CountedOptimizer()
        self._callback = callback
        self.register()

    def unwatch(self) -> None:
        """Stops the calls."""
        self._callback = None

    def register(self) -> None:
        """Registers the hook if torch is imported by now."""
        optimizers: Any = sys.modules.get("torch.optim.optimizer")
        register = getattr(optimizers, "register_optimizer_step_post_hook", None)
        if self._is_registered or register is None:
            return
        self._is_registered = True
        hooks = getattr(optimizers, "_global_optimizer_post_hooks", None)
        if hooks:
            # The other thread may be in a loop over these hooks. To add one would break it; to replace one doesn't.
            key, first = next(reversed(hooks.items()))
            hooks[key] = self._after(first)
        else:
            register(self._on_step)

    def _after(self, first: Callable[..., None]) -> Callable[..., None]:
        def both(optimizer: object, *given: Any) -> None:
            first(optimizer, *given)
            self._on_step(optimizer)

        return both

    def _on_step(self, optimizer: object, *_: Any) -> None:
        callback = self._callback
        if callback is None or threading.get_ident() != self._thread:
            return
        if self._counted.ends_step(optimizer):
            callback()


def is_active() -> bool:
    """Whether a profiler of torch records, or is about to. Takes some 20 ms, since it looks at all objects."""
    profiler: Any = sys.modules["torch.autograd.profiler"]
    kind = profiler.profile
    return bool(profiler.torch._C._autograd._profiler_enabled()) or any(
        type(found) is kind and found.entered and found.kineto_results is None for found in gc.get_objects()
    )


class Guard:
    """Lets a profiler of the user's code, which begins while ours records, end ours first.

    Args:
        end: Ends ours. Called on the thread that made the guard.
    """

    def __init__(self, end: Callable[[], None]) -> None:
        self._kind: Any = sys.modules["torch.autograd.profiler"].profile
        self._original = self._kind._prepare_trace
        self._end = end
        self._thread = threading.get_ident()

    def __enter__(self) -> Guard:
        def prepare(profiler: Any) -> None:
            if threading.get_ident() != self._thread:
                raise RuntimeError(
                    "torch's profiler can't start on this thread now, because job.profile() records the steps of "
                    "another one: try again once that has ended"
                )
            self._end()
            self._original(profiler)

        self._kind._prepare_trace = prepare
        return self

    def __exit__(self, *_: object) -> None:
        self._kind._prepare_trace = self._original


def compressed(path: Path, most_bytes: int, keep: bytes) -> tuple[bytes, str]:
    """The content of a trace, compressed, and a note about the events that are left out if it is too long.

    The file is JSON with one event after the other, which is found here by its layout: to parse it would hold up the
    other threads of the rank for seconds.

    Args:
        path: The file.
        most_bytes: How long the content may be before compression, about.
        keep: Events with this in their text are never left out.
    """
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        if len(content) <= most_bytes:
            return gzip.compress(content, _LEVEL), ""
        return _shortened(content, most_bytes, keep)


def _shortened(content: mmap.mmap, most_bytes: int, keep: bytes) -> tuple[bytes, str]:
    """The same with the longest events only. Arrows between events go first: they would point to nothing."""
    lengths = [(_duration(event, keep), len(event)) for event in _events(content)]
    left, shortest = most_bytes, 0.0
    for duration, length in sorted(lengths, reverse=True):
        left -= length
        if left < 0:
            shortest = duration
            break
    kept = [event for event in _events(content) if _duration(event, keep) > shortest]
    first = next(_EVENT.finditer(content)).start()
    text = b"".join((content[:first], b",".join(kept), b"\n  ]\n}\n"))
    dropped = len(lengths) - len(kept)
    note = f"{dropped} of {len(lengths)} events are left out of the trace, those of up to {max(shortest, 0.0):g} µs"
    return gzip.compress(text, _LEVEL), note


def _events(content: mmap.mmap) -> Iterator[bytes]:
    return (match.group() for match in _EVENT.finditer(content))


def _duration(event: bytes, keep: bytes) -> float:
    """Microseconds; infinity for what has no duration but is always kept, and less than any for arrows."""
    if _FLOW.search(event):
        return -1.0
    found = _DURATION.search(event)
    return float("inf") if found is None or keep in event else float(found[1])
