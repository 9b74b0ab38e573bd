"""A rank: takes calls from its channel, runs them, and says how they went."""

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
from notebook_accel.launch.rank import connections, exceptions, interrupts, stack_sampler
from notebook_accel.launch.rank.coalescer import Latest
from notebook_accel.launch.rank.collective_wait import Waiting
from notebook_accel.launch.rank.memory import Memory, has_changed
from notebook_accel.launch.wire import payload
from notebook_accel.launch.wire.constants import REPORT_INTERVAL, STACKS_SIGNAL
from notebook_accel.launch.wire.payload import Unpacked
from notebook_accel.launch.wire.stream import Channel, Message

_MOST_TOGETHER = 500
"""How many events go into one frame at most."""


class Rank:
    """Runs calls one after the other on the thread that calls `serve`.

    A second thread owns the channel: it takes calls from it, sends what the first says, and tells now and then that the
    process is alive. So an interrupt, which only ever hits the first thread, cannot tear a message.
    """

    def __init__(
        self, channel: Channel, heartbeat: float, *, isolated: bool = True, pace: float = REPORT_INTERVAL
    ) -> None:
        self._channel = channel
        self._heartbeat = heartbeat
        self._isolated = isolated
        self._calls: queue.SimpleQueue[Callable[[], Unpacked] | None] = queue.SimpleQueue()
        self._outbox: queue.SimpleQueue[tuple[Event, Sequence[int]]] = queue.SimpleQueue()
        self._speaking = threading.Lock()
        self._wakeup = os.pipe()
        self._done = threading.Event()
        self._latest = Latest(pace)
        self._memory = Memory()
        self._told = Heartbeat(0)
        self._beats_at = 0.0
        self._main = 0
        self._waiting = Waiting(0)
        self._calls_begun = 0
        self.failed = False
        self.is_running = False
        """Whether it is busy with a call."""
        self.is_wanted = True
        """Whether calls are still to be run; only ever cleared, by another thread."""

    def serve(self) -> None:
        """Says hello, and runs calls until the channel tells that no further one comes."""
        self._main = threading.get_ident()
        self._waiting = Waiting(self._main)
        stacks = _open_stacks() if self._isolated else None
        self._say(Hello(os.getpid(), socket.gethostname(), stacks is not None), () if stacks is None else (stacks,))
        attendant = threading.Thread(target=self._attend, name="notebook-accel", daemon=True)
        attendant.start()
        if self._isolated:
            interrupts.install()
        if self._isolated and sys.platform == "linux":  # elsewhere it is a signal that the user's code may use
            signal.pthread_sigmask(signal.SIG_BLOCK, {STACKS_SIGNAL})
        events.set_sink(self._say, self._latest.add_metrics)
        while (call := self._calls.get()) is not None:
            if not self.is_wanted:
                break
            self.is_running = True
            self._answer(call)
            self.is_running = False
        events.set_sink(None)
        self._done.set()
        os.write(self._wakeup[1], b"+")
        attendant.join()

    def close(self) -> None:
        """Frees what it holds, once it has served."""
        self._channel.close()
        for fd in self._wakeup:
            os.close(fd)

    def submit(self, load: Callable[[], Unpacked]) -> None:
        """Queues a call."""
        self._calls.put(load)

    def interrupt(self) -> None:
        """Raises `KeyboardInterrupt` in its call, if there is one, between two Python instructions of its thread."""
        if self.is_running:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._main), ctypes.py_object(KeyboardInterrupt))

    def _attend(self) -> None:
        """The second thread."""
        try:
            with contextlib.suppress(ConnectionError):  # nobody listens any more
                while not (self._done.is_set() and self._outbox.empty()):
                    self._turn()
        except BaseException:
            self.failed = True  # it can't say anything more itself
            raise
        finally:
            self._calls.put(None)

    def _turn(self) -> None:
        """Waits for something to do, and does it."""
        speaker, waker = self._channel.fileno(), self._wakeup[0]
        sources = [speaker, waker] if self._channel.is_open else [waker]
        readable, _, _ = select.select(sources, [], [], min(self._heartbeat, REPORT_INTERVAL))
        if not readable:
            self._beat()
        if waker in readable:
            os.read(waker, 4096)
        self._speak(time.monotonic())
        if speaker in readable:
            self._hear(self._channel.receive(wait=True))

    def _speak(self, now: float) -> None:
        """Sends what there is to say, on either thread."""
        with self._speaking:
            self._tell(self._latest.take(now))
            if self.is_running:
                self._tell(self._waiting.look(now))
            said = []
            while not self._outbox.empty():
                said.append(self._outbox.get())
            # Of a rank that lives on, most calls are over at once: how far they were is old news then.
            is_over = self._calls_begun > 1 and any(isinstance(event, (Returned, Failed)) for event, _ in said)
            for event, fds in said:
                if not (is_over and isinstance(event, PhaseChanged)):
                    self._send(event, fds)

    def _send(self, event: Event, fds: Sequence[int]) -> None:
        if isinstance(event, (Returned, Failed)):
            self._tell(self._latest.take_all(time.monotonic()))  # they are part of the call
            self._waiting.forget()
        try:
            self._channel.send(*to_wire(event), fds)
        except StreamError as error:
            self._send_instead(event, error)

    def _send_instead(self, event: Event, error: StreamError) -> None:
        """Sees to it that nobody waits for a message that is too long to be sent."""
        if isinstance(event, (Returned, Failed)):
            self.failed = True
            self._channel.send(*to_wire(exceptions.too_long(event, error)))
            return
        with contextlib.suppress(Exception):
            sys.stderr.write(f"notebook-accel: a {event.kind!r} message of this rank is left out: {error}\n")
        if isinstance(event, InputRequested):
            events.input_answers().put(Answer(None))

    def _hear(self, messages: list[Message] | None) -> None:
        for message in messages or ():
            said = from_wire(message.header)
            if isinstance(said, StacksRequested):
                self._tell([Stacks(said.number, stack_sampler.threads(self._main, all_of_them=self._isolated))])
            elif isinstance(said, Disconnect):
                connections.disconnect()
            elif isinstance(said, Interrupt):
                self.interrupt()
            elif isinstance(said, Answer):
                events.input_answers().put(said)
            else:
                assert isinstance(said, Call)
                self.submit(functools.partial(payload.receive, message, said.layout))
        if messages is None:
            self._calls.put(None)

    def _tell(self, events: Sequence[Event]) -> None:
        """Sends what is nothing but JSON."""
        for at in range(0, len(events), _MOST_TOGETHER):
            some = events[at : at + _MOST_TOGETHER]
            try:
                self._channel.send_together([to_wire(event)[0] for event in some])
            except StreamError:
                for event in some:
                    self._send(event, ())

    def _beat(self) -> None:
        """Tells the memory of the process, when it has changed by a MiB."""
        now = time.monotonic()
        if now < self._beats_at:
            return
        self._beats_at = now + self._heartbeat
        found = self._memory.look(now)
        if has_changed(self._told, found):
            self._told = found
            self._outbox.put((found, ()))

    def _say(self, event: Event, fds: Sequence[int] = (), *, at_once: bool = True) -> None:
        if isinstance(event, (Metrics, Bar)):
            self._latest.add(event)
            return
        self._outbox.put((event, fds))
        if at_once:
            os.write(self._wakeup[1], b"+")

    def _answer(self, load: Callable[[], Unpacked]) -> None:
        try:
            if self._isolated:
                interrupts.allow()
            outcome = self._run(load)
        except KeyboardInterrupt as error:  # between two stages
            outcome = exceptions.describe(error, "running")
        if self._isolated:
            interrupts.ignore()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        self.failed = isinstance(outcome, Failed)
        if not self._isolated:
            self._say(outcome)
            return
        # No interrupt comes any more, so that this thread can speak: the other need not wake up for it.
        self._outbox.put((outcome, ()))
        with contextlib.suppress(ConnectionError):  # nobody listens any more
            self._speak(time.monotonic())

    def _run(self, load: Callable[[], Unpacked]) -> Returned | Failed:
        stage = "loading"
        sent: Set[str] = frozenset()
        self._calls_begun += 1
        at_once = self._calls_begun == 1  # later ones may be over before the other thread wakes up
        try:
            self._say(PhaseChanged(Phase.LOADING), at_once=at_once)
            call = load()
            sent = call.definitions
            self._say(PhaseChanged(Phase.RUNNING), at_once=at_once)
            stage = "running"
            value = call()
            stage = "returning"
            return Returned(payload.pack_value(value, call.definitions))
        except SystemExit as error:
            failure = exceptions.describe(error, stage, sent)
            return failure if failure.exit_code else Returned()
        except BaseException as error:
            failure = exceptions.describe(error, stage, sent)
            if error is not getattr(sys, "last_value", None):  # which a debugger will look at
                exceptions.release(error)
            return failure


def _open_stacks() -> int | None:
    """A file without a name, to which the stacks are written on `STACKS_SIGNAL` or when the process crashes."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("notebook-accel-stacks", os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    faulthandler.enable(fd)
    faulthandler.register(STACKS_SIGNAL, fd)
    return fd
