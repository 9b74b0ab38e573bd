"""A rank: takes calls from its channel, runs them on the main thread, and sends what became of each."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import functools
import os
import queue
import select
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence, Set

from notebook_accel import events
from notebook_accel.errors import StreamError
from notebook_accel.events import (
    Answer,
    Bar,
    Call,
    Disconnect,
    Event,
    Failed,
    Heartbeat,
    Hello,
    InputRequested,
    Interrupt,
    Metrics,
    Phase,
    PhaseChanged,
    Returned,
    Stacks,
    StacksRequested,
    from_wire,
    to_wire,
)
from notebook_accel.launch.rank import disconnect, exception_events, interrupts, stack_sampler
from notebook_accel.launch.rank.coalescer import Coalescer
from notebook_accel.launch.rank.collective_wait import WaitDetector
from notebook_accel.launch.rank.memory import Memory, has_changed
from notebook_accel.launch.wire import payload
from notebook_accel.launch.wire.constants import REPORT_INTERVAL, STACKS_SIGNAL
from notebook_accel.launch.wire.payload import Unpacked
from notebook_accel.launch.wire.stream import Channel, Message
from notebook_accel.launch.wire.thread_marks import CHANNEL_THREAD, MAIN_LOOP, named_in_dumps

_MOST_EVENTS = 500
"""The most events that share one frame on the socket, so that no frame gets too long."""


class Rank:
    """Runs calls one after the other on the thread that calls `serve`.

    A second thread, the channel thread, owns the channel: it receives calls, sends what the first emits, and samples
    memory and collective waits. Python raises an interrupt only in the main thread, so it cannot cut a message in two.
    """

    def __init__(
        self, channel: Channel, heartbeat: float, *, isolated: bool = True, pace: float = REPORT_INTERVAL
    ) -> None:
        self._channel = channel
        self._heartbeat = heartbeat
        self._isolated = isolated
        self._calls: queue.SimpleQueue[Callable[[], Unpacked] | None] = queue.SimpleQueue()
        self._outbox: queue.SimpleQueue[tuple[Event, Sequence[int]]] = queue.SimpleQueue()
        self._send_lock = threading.Lock()
        self._wakeup_pipe = os.pipe()
        self._done = threading.Event()
        self._coalescer = Coalescer(pace)
        self._memory = Memory()
        self._last_heartbeat = Heartbeat(0)
        self._next_heartbeat = 0.0
        self._main_ident = 0
        self._wait_detector = WaitDetector(0)
        self._calls_started = 0
        self.failed = False
        self.is_running = False
        """Whether a call is under way."""
        self.is_wanted = True
        """Whether further calls are run. Another thread may clear it; nothing sets it again."""

    @named_in_dumps(MAIN_LOOP)
    def serve(self) -> None:
        """The main loop: sends `Hello`, and runs calls until the other end closes the channel."""
        self._main_ident = threading.get_ident()
        self._wait_detector = WaitDetector(self._main_ident)
        stacks_fd = _open_stacks_file() if self._isolated else None
        self._emit(Hello(os.getpid(), socket.gethostname()), () if stacks_fd is None else (stacks_fd,))
        channel_thread = threading.Thread(target=self._run_channel_thread, name="notebook-accel", daemon=True)
        channel_thread.start()
        if self._isolated:
            interrupts.install()
        # The channel thread takes the signal instead, so that it interrupts no system call of the user's code. Not
        # elsewhere than on Linux: there it is SIGUSR2, which the user's code may use itself.
        if self._isolated and sys.platform == "linux":
            signal.pthread_sigmask(signal.SIG_BLOCK, {STACKS_SIGNAL})
        events.set_sink(self._emit, self._coalescer.add_metrics)
        while (call := self._calls.get()) is not None:
            if not self.is_wanted:
                break
            self.is_running = True
            self._run_call(call)
            self.is_running = False
        events.set_sink(None)
        self._done.set()
        os.write(self._wakeup_pipe[1], b"+")
        channel_thread.join()

    def close(self) -> None:
        """Closes the channel and the wakeup pipe, after `serve` has returned."""
        self._channel.close()
        for fd in self._wakeup_pipe:
            os.close(fd)

    def submit(self, load: Callable[[], Unpacked]) -> None:
        """Queues a call for the main loop, which first runs `load` to unpickle it."""
        self._calls.put(load)

    def interrupt(self) -> None:
        """Raises `KeyboardInterrupt` in the call that is running, between two Python instructions of its thread.

        For a rank that is a thread, which no signal can reach.
        """
        if self.is_running:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(self._main_ident), ctypes.py_object(KeyboardInterrupt)
            )

    @named_in_dumps(CHANNEL_THREAD)
    def _run_channel_thread(self) -> None:
        """The loop of the channel thread: until all calls are done and everything they emitted has been sent."""
        try:
            with contextlib.suppress(ConnectionError):  # the other end has closed the channel
                while not (self._done.is_set() and self._outbox.empty()):
                    self._poll()
        except BaseException:
            self.failed = True  # nothing can be sent any more, so only the exit code can report it
            raise
        finally:
            self._calls.put(None)

    def _poll(self) -> None:
        """Waits for the channel, the wakeup pipe or the next sample; receives, samples and sends."""
        channel_fd, wakeup_fd = self._channel.fileno(), self._wakeup_pipe[0]
        sources = [channel_fd, wakeup_fd] if self._channel.is_open else [wakeup_fd]
        readable, _, _ = select.select(sources, [], [], min(self._heartbeat, REPORT_INTERVAL))
        if not readable:
            self._check_memory()
        if wakeup_fd in readable:
            os.read(wakeup_fd, 4096)
        self._flush(time.monotonic())
        if channel_fd in readable:
            self._on_messages(self._channel.receive(wait=True))

    def _flush(self, now: float) -> None:
        """Sends everything that is queued, on either thread: after a call the main thread does it, to save a wakeup."""
        with self._send_lock:
            self._send_together(self._coalescer.take(now))
            if self.is_running:
                self._send_together(self._wait_detector.sample(now))
            queued = []
            while not self._outbox.empty():
                queued.append(self._outbox.get())
            # Most calls of a persistent rank end at once. The phases of one that has ended need not be sent.
            is_over = self._calls_started > 1 and any(isinstance(event, (Returned, Failed)) for event, _ in queued)
            for event, fds in queued:
                if not (is_over and isinstance(event, PhaseChanged)):
                    self._send(event, fds)

    def _send(self, event: Event, fds: Sequence[int]) -> None:
        if isinstance(event, (Returned, Failed)):
            self._send_together(self._coalescer.take_all(time.monotonic()))  # they are part of the call
            self._wait_detector.reset()
        try:
            self._channel.send(*to_wire(event), fds)
        except StreamError as error:
            self._send_instead(event, error)

    def _send_instead(self, event: Event, error: StreamError) -> None:
        """Replaces a message that is too long, so that neither the driver nor the user's code waits for it forever."""
        if isinstance(event, (Returned, Failed)):
            self.failed = True
            self._channel.send(*to_wire(exception_events.too_long(event, error)))
            return
        with contextlib.suppress(Exception):
            sys.stderr.write(f"notebook-accel: a {event.kind!r} message of this rank is left out: {error}\n")
        if isinstance(event, InputRequested):
            events.input_answers().put(Answer(None))

    def _on_messages(self, messages: list[Message] | None) -> None:
        for message in messages or ():
            request = from_wire(message.header)
            if isinstance(request, StacksRequested):
                self._send_together(
                    [Stacks(request.number, stack_sampler.threads(self._main_ident, all_of_them=self._isolated))]
                )
            elif isinstance(request, Disconnect):
                disconnect.disconnect()
            elif isinstance(request, Interrupt):
                self.interrupt()
            elif isinstance(request, Answer):
                events.input_answers().put(request)
            else:
                assert isinstance(request, Call)
                self.submit(functools.partial(payload.receive, message, request.layout))
        if messages is None:
            self._calls.put(None)

    def _send_together(self, events: Sequence[Event]) -> None:
        """Sends events without binary parts, many in a frame."""
        for at in range(0, len(events), _MOST_EVENTS):
            batch = events[at : at + _MOST_EVENTS]
            try:
                self._channel.send_together([to_wire(event)[0] for event in batch])
            except StreamError:
                for event in batch:
                    self._send(event, ())

    def _check_memory(self) -> None:
        """Queues a heartbeat if the memory of the process has changed by a MiB."""
        now = time.monotonic()
        if now < self._next_heartbeat:
            return
        self._next_heartbeat = now + self._heartbeat
        found = self._memory.sample(now)
        if has_changed(self._last_heartbeat, found):
            self._last_heartbeat = found
            self._outbox.put((found, ()))

    def _emit(self, event: Event, fds: Sequence[int] = (), *, at_once: bool = True) -> None:
        if isinstance(event, (Metrics, Bar)):
            self._coalescer.add(event)
            return
        self._outbox.put((event, fds))
        if at_once:
            os.write(self._wakeup_pipe[1], b"+")

    def _run_call(self, load: Callable[[], Unpacked]) -> None:
        try:
            if self._isolated:
                interrupts.allow()
            outcome = self._evaluate(load)
        except KeyboardInterrupt as error:  # it came between two stages of `_evaluate`
            outcome = exception_events.describe(error, "running")
        if self._isolated:
            interrupts.ignore()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        self.failed = isinstance(outcome, Failed)
        if not self._isolated:
            self._emit(outcome)
            return
        # Interrupts are ignored from here on, so this thread can send by itself and save the channel thread's wakeup.
        self._outbox.put((outcome, ()))
        with contextlib.suppress(ConnectionError):  # the other end has closed the channel
            self._flush(time.monotonic())

    def _evaluate(self, load: Callable[[], Unpacked]) -> Returned | Failed:
        stage = "loading"
        sent: Set[str] = frozenset()
        self._calls_started += 1
        at_once = self._calls_started == 1  # later calls may end before the channel thread wakes up
        try:
            self._emit(PhaseChanged(Phase.LOADING), at_once=at_once)
            call = load()
            sent = call.definitions
            self._emit(PhaseChanged(Phase.RUNNING), at_once=at_once)
            stage = "running"
            value = call()
            stage = "returning"
            return Returned(payload.pack_value(value, call.definitions))
        except SystemExit as error:
            failure = exception_events.describe(error, stage, sent)
            return failure if failure.exit_code else Returned()
        except BaseException as error:
            failure = exception_events.describe(error, stage, sent)
            if error is not getattr(sys, "last_value", None):  # a post-mortem debugger needs its frames
                exception_events.release(error)
            return failure


def _open_stacks_file() -> int | None:
    """An unnamed file to which faulthandler writes the stacks on `STACKS_SIGNAL`, or when the process crashes.

    The kernel holds the same open file, and reads it after the process is gone.
    """
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("notebook-accel-stacks", os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    faulthandler.enable(fd)
    faulthandler.register(STACKS_SIGNAL, fd)
    return fd
