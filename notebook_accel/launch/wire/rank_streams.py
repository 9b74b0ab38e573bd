"""Reads what one rank on this machine sends: its events from a channel, what it writes from its output pipes."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from notebook_accel.errors import StreamError
from notebook_accel.events import (
    Bar,
    Cleared,
    Event,
    Exited,
    Failed,
    InputRequested,
    Reports,
    Returned,
    Shown,
    Written,
    from_wire,
    to_wire,
)
from notebook_accel.launch.wire import pipe_marks
from notebook_accel.launch.wire.event_loop import EventLoop
from notebook_accel.launch.wire.stream import Channel, Message

PIPE_SIZE = 2**20
"""Capacity of a rank's output pipes in bytes, where the system allows it: a rank that writes more has to wait."""
_READ_SIZE = 2**16
"""The most bytes of one read. Between two reads, requests to stop are handled, and the other ranks have their turn."""
_AFTER_OUTPUT = (Returned, Failed, Exited, InputRequested)
"""The events before which comes what the rank has written: a pipe and a channel are not ordered relative to each other.

The others do not depend on it, and are more frequent."""
_IN_OUTPUT = (Shown, Cleared)
"""The events that have a place among what the rank has written, which their marks in its pipes say."""
_MARK_TIMEOUT = 1.0
"""Seconds that what follows a mark waits for its event. An interrupt may have come between the two."""


class _Pipe:
    """One of a rank's output pipes."""

    def __init__(self, fd: int, stream: str) -> None:
        self.fd = fd
        self.stream = stream
        self.held = b""
        """What was read and not passed on: the beginning of a mark, or a mark that waits for its event and the rest."""
        self.awaited: int | None = None
        """The number of the mark that waits for its event."""


class RankStreams:
    """The streams of one rank.

    Args:
        loop: Reads them.
        channel: The rank's events.
        pipes: The descriptors of its pipes, with the names of their streams. They do not block.
        on_event: Called with each event, and with the descriptors that came with it.
        on_garbage: Called if something else has written to the channel, so that no further event can be decoded.
    """

    def __init__(
        self,
        loop: EventLoop,
        channel: Channel,
        pipes: Mapping[int, str],
        on_event: Callable[[Event, Sequence[int]], object],
        on_garbage: Callable[[], object],
    ) -> None:
        self.channel = channel
        self._loop = loop
        self._pipes = [_Pipe(fd, stream) for fd, stream in pipes.items()]
        self._arrived = 0
        """The number of the last mark whose event has arrived, or is no longer waited for."""
        self._is_paused = False
        self._on_event = on_event
        self._on_garbage = on_garbage
        self._is_decodable = True
        self.resume()

    def send(self, event: Event) -> None:
        """Sends an event to the rank.

        Raises:
            OSError: The rank is gone.
        """
        self.channel.send(*to_wire(event))

    def pause(self) -> None:
        """Stops reading."""
        self._is_paused = True
        self._loop.unregister(self.channel)
        for pipe in self._pipes:
            self._loop.unregister(pipe.fd)

    def resume(self) -> None:
        """Begins to read, or continues."""
        self.pause()
        self._is_paused = False
        if self._is_readable():
            self._loop.register_throttled(self.channel, self._on_channel)
        for pipe in self._pipes:
            self._register(pipe)

    def handle(self, messages: Sequence[Message]) -> bool:
        """Handles messages of the rank; returns whether they are only progress.

        Raises:
            StreamError: One is not an event.
        """
        only_progress = [self._on_message(message) for message in messages]
        return all(only_progress)

    def read_rest(self) -> None:
        """Reads what a rank that has exited sent and wrote before, and then stops reading.

        End of file may never come, since a child process of the rank may hold its pipes open.
        """
        while self._is_readable() and self.channel.has_data():
            self._on_channel()
        self._drain()
        self.pause()

    def close(self) -> None:
        """Frees all descriptors."""
        self.pause()
        self.channel.close()
        for pipe in self._pipes:
            os.close(pipe.fd)
        self._pipes.clear()

    def _is_readable(self) -> bool:
        return self._is_decodable and self.channel.is_open

    def _on_channel(self) -> bool:
        """Handles what has arrived; returns whether that was only progress, so that the next read may be throttled."""
        is_progress = False
        try:
            messages = self.channel.receive(wait=False)
            is_progress = self.handle(messages or ())
        except StreamError:
            self._is_decodable, messages = False, None
            self._on_garbage()
        if messages is None:
            self._loop.unregister(self.channel)
        return is_progress and bool(messages) and not self.channel.is_torn

    def _on_message(self, message: Message) -> bool:
        """Handles a message; returns whether it is only progress."""
        event = from_wire(message.header, message.blobs)
        if isinstance(event, _AFTER_OUTPUT):
            self._drain()
        if isinstance(event, _IN_OUTPUT) and event.mark:
            self._read_until(event.mark)
            self._on_event(event, message.fds)
            self._arrive(event.mark)
        else:
            self._on_event(event, message.fds)
        return isinstance(event, (Bar, Reports))

    def _drain(self) -> None:
        """Reads everything that is in the pipes now, but not what is written in the meantime."""
        for pipe in list(self._pipes):
            left = PIPE_SIZE
            while left > 0 and (count := self._read(pipe)):
                left -= count
            while pipe.awaited is not None:  # its event would have come before the one that follows the output
                self._arrive(pipe.awaited)

    def _read_until(self, number: int) -> None:
        """Passes on what comes before a mark in all pipes, in which it is by now."""
        self._arrive(number - 1)
        for pipe in list(self._pipes):
            left = PIPE_SIZE
            while pipe.awaited is None and left > 0 and (count := self._read(pipe)):
                left -= count

    def _arrive(self, number: int) -> None:
        """Passes on what follows a mark, and those before it."""
        self._arrived = max(self._arrived, number)
        for pipe in list(self._pipes):
            if pipe.awaited is not None and pipe.awaited <= self._arrived:
                pipe.awaited = None
                self._pass_on(pipe, b"")
                self._register(pipe)

    def _register(self, pipe: _Pipe) -> None:
        if pipe in self._pipes and pipe.awaited is None and not self._is_paused:
            self._loop.register(pipe.fd, partial(self._read, pipe))

    def _read(self, pipe: _Pipe) -> int:
        """Reads once; returns how many bytes."""
        try:
            data = os.read(pipe.fd, _READ_SIZE)
        except BlockingIOError:
            return 0
        if data:
            self._pass_on(pipe, data)
        else:
            self._loop.unregister(pipe.fd)
            self._pipes.remove(pipe)
            os.close(pipe.fd)
            self._write(pipe, pipe_marks.without_marks(pipe.held))
        return len(data)

    def _pass_on(self, pipe: _Pipe, data: bytes) -> None:
        """Passes on what was read, up to a mark whose event has not arrived."""
        pipe.held += data
        while pipe.awaited is None:
            text, number, rest = pipe_marks.split(pipe.held)
            if number is None or number <= self._arrived:
                pipe.held = rest
            else:
                pipe.held, pipe.awaited = pipe.held[len(text) :], number
                self._loop.unregister(pipe.fd)
                self._loop.unthrottle()  # the event follows at once
                self._loop.call_later(_MARK_TIMEOUT, partial(self._arrive_late, pipe, number))
            self._write(pipe, text)
            if number is None:
                break

    def _arrive_late(self, pipe: _Pipe, number: int) -> None:
        if pipe.awaited == number and pipe in self._pipes:
            self._arrive(number)

    def _write(self, pipe: _Pipe, data: bytes) -> None:
        if data:
            self._on_event(Written(pipe.stream, [data]), ())
