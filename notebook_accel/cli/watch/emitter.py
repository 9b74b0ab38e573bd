"""The thread of a watched rank that tells how far it is. Runs beside the script, which never waits for it."""

from __future__ import annotations

import contextlib
import os
import queue
import select
import threading
import time
from collections.abc import Iterable

from notebook_accel import events
from notebook_accel.errors import StreamError
from notebook_accel.events import (
    Answer,
    Bar,
    Event,
    Heartbeat,
    Metrics,
    Phase,
    PhaseChanged,
    Stacks,
    StacksRequested,
    from_wire,
    to_wire,
)
from notebook_accel.launch.rank import stack_sampler
from notebook_accel.launch.rank.coalescer import Latest
from notebook_accel.launch.rank.collective_wait import Waiting
from notebook_accel.launch.rank.memory import Memory, has_changed
from notebook_accel.launch.wire import constants
from notebook_accel.launch.wire.constants import REPORT_INTERVAL
from notebook_accel.launch.wire.stream import Channel, Message


class Emitter:
    """Tells a watcher what the thread that makes this does: its bars, metrics, waits and memory."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._main = threading.get_ident()
        self._latest = Latest(constants.report_interval(int(os.environ.get("LOCAL_WORLD_SIZE", "1"))))
        self._waiting = Waiting(self._main)
        self._memory = Memory()
        self._told = Heartbeat(0)
        self._outbox: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._reading, self._waking = os.pipe()
        self._thread = threading.Thread(target=self._attend, name="notebook-accel", daemon=True)
        self._say(PhaseChanged(Phase.RUNNING))
        self._thread.start()
        events.set_sink(self._say, self._latest.add_metrics)

    def end(self, last: Event) -> None:
        """Says how the script ended, after all that is still to be told."""
        events.set_sink(None)
        self._say(last)
        self._say(None)
        self._thread.join()

    def forget(self) -> None:
        """Leaves the watcher to the process that this one was forked from."""
        events.set_sink(None)
        self._channel.close()

    def _say(self, event: Event | None) -> None:
        if isinstance(event, (Metrics, Bar)):
            self._latest.add(event)
            return
        self._outbox.put(event)
        os.write(self._waking, b"+")

    def _attend(self) -> None:
        """The thread."""
        try:
            with contextlib.suppress(OSError):  # nobody listens any more
                while self._turn():
                    pass
        finally:
            events.set_sink(None)
            events.input_answers().put(Answer(None))

    def _turn(self) -> bool:
        """Waits for something to do, and does it; returns whether there may be more."""
        sources = [self._reading, *([self._channel.fileno()] if self._channel.is_open else [])]
        readable, _, _ = select.select(sources, [], [], REPORT_INTERVAL)
        if self._reading in readable:
            os.read(self._reading, 4096)
        if self._channel.fileno() in readable:
            self._hear(self._channel.receive(wait=False))
        now = time.monotonic()
        self._tell(self._latest.take(now))
        self._tell(self._waiting.look(now))
        self._tell_memory(now)
        while not self._outbox.empty():
            event = self._outbox.get()
            if event is None:
                return False
            self._tell([*self._latest.take_all(now), event])
        return True

    def _hear(self, messages: Iterable[Message] | None) -> None:
        for message in messages or ():
            said = from_wire(message.header)
            if isinstance(said, StacksRequested):
                self._tell([Stacks(said.number, stack_sampler.threads(self._main, all_of_them=True))])
            elif isinstance(said, Answer):
                events.input_answers().put(said)

    def _tell_memory(self, now: float) -> None:
        found = self._memory.look(now)
        if has_changed(self._told, found):
            self._told = found
            self._tell([found])

    def _tell(self, said: Iterable[Event]) -> None:
        for event in said:
            with contextlib.suppress(StreamError):  # it is too long, and no more than a picture of what goes on
                self._channel.send(*to_wire(event))
