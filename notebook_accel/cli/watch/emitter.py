"""The thread of a watched rank that sends its events to the watcher. The script never waits for it."""

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
from notebook_accel.launch.rank.coalescer import Coalescer
from notebook_accel.launch.rank.collective_wait import WaitDetector
from notebook_accel.launch.rank.memory import Memory, has_changed
from notebook_accel.launch.wire import constants
from notebook_accel.launch.wire.constants import REPORT_INTERVAL
from notebook_accel.launch.wire.stream import Channel, Message
from notebook_accel.launch.wire.thread_marks import CHANNEL_THREAD, named_in_dumps


class Emitter:
    """Sends a watcher the events of the thread that creates this: bars, metrics, waits and memory."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._main = threading.get_ident()
        self._latest = Coalescer(constants.report_interval(int(os.environ.get("LOCAL_WORLD_SIZE", "1"))))
        self._waiting = WaitDetector(self._main)
        self._memory = Memory()
        self._last_heartbeat = Heartbeat(0)
        self._outbox: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._wake_reader, self._wake_writer = os.pipe()
        self._thread = threading.Thread(target=self._run, name="notebook-accel", daemon=True)
        self._put(PhaseChanged(Phase.RUNNING))
        self._thread.start()
        events.set_sink(self._put, self._latest.add_metrics)

    def end(self, last: Event) -> None:
        """Sends all pending events, then how the script ended, and stops the thread."""
        events.set_sink(None)
        self._put(last)
        self._put(None)
        self._thread.join()

    def forget(self) -> None:
        """Disconnects a forked child, whose parent is the rank."""
        events.set_sink(None)
        self._channel.close()

    def _put(self, event: Event | None) -> None:
        if isinstance(event, (Metrics, Bar)):
            self._latest.add(event)
            return
        self._outbox.put(event)
        os.write(self._wake_writer, b"+")

    @named_in_dumps(CHANNEL_THREAD)
    def _run(self) -> None:
        """Runs the thread."""
        try:
            with contextlib.suppress(OSError):  # the watcher is gone
                while self._run_once():
                    pass
        finally:
            events.set_sink(None)
            events.input_answers().put(Answer(None))

    def _run_once(self) -> bool:
        """Waits for an event, a message or the next tick, and handles it; returns `False` after the last event."""
        sources = [self._wake_reader, *([self._channel.fileno()] if self._channel.is_open else [])]
        readable, _, _ = select.select(sources, [], [], REPORT_INTERVAL)
        if self._wake_reader in readable:
            os.read(self._wake_reader, 4096)
        if self._channel.fileno() in readable:
            self._on_messages(self._channel.receive(wait=False))
        now = time.monotonic()
        self._send(self._latest.take(now))
        self._send(self._waiting.sample(now))
        self._send_memory(now)
        while not self._outbox.empty():
            event = self._outbox.get()
            if event is None:
                return False
            self._send([*self._latest.take_all(now), event])
        return True

    def _on_messages(self, messages: Iterable[Message] | None) -> None:
        for message in messages or ():
            said = from_wire(message.header)
            if isinstance(said, StacksRequested):
                self._send([Stacks(said.number, stack_sampler.threads(self._main, all_of_them=True))])
            elif isinstance(said, Answer):
                events.input_answers().put(said)

    def _send_memory(self, now: float) -> None:
        found = self._memory.sample(now)
        if has_changed(self._last_heartbeat, found):
            self._last_heartbeat = found
            self._send([found])

    def _send(self, said: Iterable[Event]) -> None:
        for event in said:
            with contextlib.suppress(StreamError):  # it is too long, and only for display
                self._channel.send(*to_wire(event))
