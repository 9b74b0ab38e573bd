"""Reads what one rank on this machine sends: its events from a channel, what it writes from its output pipes."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from notebook_accel.errors import StreamError
from notebook_accel.events import (
    Bar,
    Event,
    Exited,
    Failed,
    InputRequested,
    Metrics,
    Returned,
    Shown,
    Written,
    from_wire,
    to_wire,
)
from notebook_accel.launch.wire.event_loop import EventLoop
from notebook_accel.launch.wire.stream import Channel, Message

PIPE_SIZE = 2**20
"""Capacity of a rank's output pipes in bytes, where the system allows it: a rank that writes more has to wait."""
_AFTER_OUTPUT = (Returned, Failed, Exited, Shown, InputRequested)
"""The events before which comes what the rank has written: a pipe and a channel are not ordered relative to each other.

The others do not depend on it, and are more frequent."""


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
        self._pipes = dict(pipes)
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
        self._loop.unregister(self.channel)
        for fd in self._pipes:
            self._loop.unregister(fd)

    def resume(self) -> None:
        """Begins to read, or goes on."""
        self.pause()
        if self._is_readable():
            self._loop.register_throttled(self.channel, self._on_channel)
        for fd in self._pipes:
            self._loop.register(fd, partial(self._read, fd))

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
        for fd in self._pipes:
            os.close(fd)
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
        self._on_event(event, message.fds)
        return isinstance(event, (Bar, Metrics))

    def _drain(self) -> None:
        """Reads everything that is in the pipes now, but not what is written meanwhile."""
        for fd in list(self._pipes):
            left = PIPE_SIZE
            while left > 0 and (count := self._read(fd)):
                left -= count

    def _read(self, fd: int) -> int:
        """Reads once; returns how many bytes."""
        try:
            data = os.read(fd, PIPE_SIZE)
        except BlockingIOError:
            return 0
        if data:
            self._on_event(Written(self._pipes[fd], [data]), ())
        else:
            self._loop.unregister(fd)
            del self._pipes[fd]
            os.close(fd)
        return len(data)
