"""Reads what the ranks on this machine send: their channels, their output pipes, and the files with their stacks.

Engines for this machine derive from `LocalRanks`. They add how ranks start, get signals, and exit.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial

from notebook_accel.errors import StreamError
from notebook_accel.events import (
    Bar,
    Event,
    Exited,
    Failed,
    Hello,
    InputRequested,
    Metrics,
    Returned,
    Shown,
    Stacks,
    Written,
    from_wire,
    to_wire,
)
from notebook_accel.launch.engines.contract import Listener
from notebook_accel.launch.wire import payload, stack_frames
from notebook_accel.launch.wire.constants import STACKS_SIGNAL
from notebook_accel.launch.wire.event_loop import EventLoop
from notebook_accel.launch.wire.payload import Payload
from notebook_accel.launch.wire.stream import Channel, Message

PIPE_SIZE = 2**20
"""Capacity of a rank's output pipes in bytes, where the system allows it: a rank that writes more has to wait."""
_AFTER_OUTPUT = (Returned, Failed, Exited, Shown, InputRequested)
"""The events before which comes what the rank has written: a pipe and a channel are not ordered relative to each other.

The others do not depend on it, and are more frequent."""
_DUMP_QUIET = 0.05
"""Seconds without growth after which a rank's stacks file is considered complete."""
_DUMP_TIMEOUT = 2.0
_MAX_DUMP = 2**20


class LocalRanks(ABC):
    """The ranks of one group on this machine.

    Args:
        loop: Reads what they send.
        listener: Is called with their events.
    """

    def __init__(self, loop: EventLoop, listener: Listener) -> None:
        self._loop = loop
        self._listener = listener
        self._channels: list[Channel] = []
        self._pipes: list[dict[int, str]] = []
        """The descriptors of each rank's open pipes, with the names of their streams."""
        self._stack_files: dict[int, int] = {}
        """The descriptors of the files that faulthandler writes to."""
        self._exited: set[int] = set()

    @abstractmethod
    def signal(self, rank: int, signum: int) -> None:
        """As in the contract."""

    def call(self, ranks: Collection[int], packed: Payload) -> None:
        for rank in ranks:
            with contextlib.suppress(OSError):  # it has exited, which is reported
                payload.send(packed, self._channels[rank])

    def send(self, ranks: Collection[int], event: Event) -> None:
        header, blobs = to_wire(event)
        for rank in ranks:
            with contextlib.suppress(OSError):
                self._channels[rank].send(header, blobs)

    def finish(self, ranks: Collection[int]) -> None:
        for rank in ranks:
            self._channels[rank].finish()

    def pause(self, rank: int) -> None:
        self._loop.unregister(self._channels[rank])
        for fd in self._pipes[rank]:
            self._loop.unregister(fd)

    def resume(self, rank: int) -> None:
        if rank in self._exited:
            return
        self.pause(rank)
        if self._channels[rank].is_open:
            self._loop.register_throttled(self._channels[rank], partial(self._on_channel, rank))
        for fd in self._pipes[rank]:
            self._loop.register(fd, partial(self._read, rank, fd))

    def dump_stacks(self, ranks: Collection[int], number: int) -> None:
        give_up_at = time.monotonic() + _DUMP_TIMEOUT
        for rank in ranks:
            if rank in self._stack_files:
                _empty(self._stack_files[rank])
                self.signal(rank, STACKS_SIGNAL)
                self._loop.call_later(_DUMP_QUIET, partial(self._check_dump, rank, number, 0, give_up_at))

    def close(self) -> None:
        for rank, channel in enumerate(self._channels):
            self.pause(rank)
            channel.close()
            for fd in self._pipes[rank]:
                os.close(fd)
        for fd in self._stack_files.values():
            os.close(fd)
        self._channels, self._pipes, self._stack_files = [], [], {}

    # For engines

    def _add(self, channel: Channel, pipes: Mapping[int, str]) -> None:
        """Adds the next rank, and begins to read from it. The pipes do not block."""
        self._channels.append(channel)
        self._pipes.append(dict(pipes))
        self.resume(len(self._channels) - 1)

    def _on_exit(self, rank: int, exited: Exited) -> None:
        """Reports the exit of a rank, after all that the rank has sent and written before."""
        channel = self._channels[rank]
        while channel.is_open and channel.has_data():
            self._on_channel(rank)
        self._drain(rank)
        self.pause(rank)  # end of file may never come, since a child process of the rank may hold its pipes open
        self._exited.add(rank)
        self._listener.on_event(rank, replace(exited, crash=self._dump(rank)))

    # What ranks send

    def _on_channel(self, rank: int) -> bool:
        """Handles what has arrived; returns whether that was only progress, so that the next read may be throttled."""
        channel = self._channels[rank]
        is_progress = True
        try:
            messages = channel.receive(wait=False)
            for message in messages or ():
                is_progress &= self._on_message(rank, message)
        except StreamError:
            # Something else has written to the rank's socket, so the rank's messages can no longer be decoded.
            self.signal(rank, signal.SIGKILL)
            messages = None
        if messages is None:
            self._loop.unregister(channel)
        return is_progress and bool(messages) and not channel.is_torn

    def _on_message(self, rank: int, message: Message) -> bool:
        """Handles a message; returns whether it is only progress."""
        event = from_wire(message.header, message.blobs)
        if isinstance(event, (Bar, Metrics)):
            self._listener.on_event(rank, event)
            return True
        if isinstance(event, Hello) and message.fds:
            self._stack_files[rank] = message.fds[0]
        elif isinstance(event, _AFTER_OUTPUT):
            self._drain(rank)
        self._listener.on_event(rank, event)
        return False

    def _drain(self, rank: int) -> None:
        """Reads everything that is in the pipes now, but not what is written meanwhile."""
        for fd in list(self._pipes[rank]):
            left = PIPE_SIZE
            while left > 0 and (count := self._read(rank, fd)):
                left -= count

    def _read(self, rank: int, fd: int) -> int:
        """Reads once; returns how many bytes."""
        try:
            data = os.read(fd, PIPE_SIZE)
        except BlockingIOError:
            return 0
        stream = self._pipes[rank][fd]
        if data:
            self._listener.on_event(rank, Written(stream, [data]))
        else:
            self._loop.unregister(fd)
            del self._pipes[rank][fd]
            os.close(fd)
        return len(data)

    def _check_dump(self, rank: int, number: int, size: int, give_up_at: float) -> None:
        """Reports a rank's stacks once the file has stopped growing."""
        dump = self._dump(rank)
        if dump and len(dump) == size:
            _empty(self._stack_files[rank])
            self._listener.on_event(rank, Stacks(number, stack_frames.parse_dump(dump)))
        elif rank in self._stack_files and time.monotonic() < give_up_at:
            self._loop.call_later(_DUMP_QUIET, partial(self._check_dump, rank, number, len(dump), give_up_at))

    def _dump(self, rank: int) -> str:
        fd = self._stack_files.get(rank)
        return "" if fd is None else os.pread(fd, _MAX_DUMP, 0).decode(errors="replace")


def _empty(fd: int) -> None:
    """Empties a stacks file and resets its offset, which the rank shares because it shares the open file."""
    os.ftruncate(fd, 0)
    os.lseek(fd, 0, os.SEEK_SET)
