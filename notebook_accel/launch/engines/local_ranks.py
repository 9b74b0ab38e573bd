"""The ranks of one group on this machine: sends them requests, and passes on their events.

Engines for this machine derive from `LocalRanks`. They add how ranks start, get signals, and exit.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial

from notebook_accel.events import Event, Exited, Hello, Stacks
from notebook_accel.launch.engines.contract import Listener
from notebook_accel.launch.wire import payload, stack_frames
from notebook_accel.launch.wire.constants import STACKS_SIGNAL
from notebook_accel.launch.wire.event_loop import EventLoop
from notebook_accel.launch.wire.payload import Payload
from notebook_accel.launch.wire.rank_streams import RankStreams
from notebook_accel.launch.wire.stream import Channel

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
        self._streams: list[RankStreams] = []
        self._stack_files: dict[int, int] = {}
        """The descriptors of the files that faulthandler writes to, by rank."""
        self._pids: dict[int, int] = {}
        """The process IDs that ranks have sent."""
        self._exited: set[int] = set()

    @abstractmethod
    def signal(self, rank: int, signum: int) -> None:
        """As in the contract."""

    def call(self, ranks: Collection[int], packed: Payload) -> None:
        for rank in ranks:
            with contextlib.suppress(OSError):  # it has exited, which is reported
                payload.send(packed, self._streams[rank].channel)

    def send(self, ranks: Collection[int], event: Event) -> None:
        for rank in ranks:
            with contextlib.suppress(OSError):
                self._streams[rank].send(event)

    def finish(self, ranks: Collection[int]) -> None:
        for rank in ranks:
            self._streams[rank].channel.finish()

    def pause(self, rank: int) -> None:
        self._streams[rank].pause()

    def resume(self, rank: int) -> None:
        if rank not in self._exited:
            self._streams[rank].resume()

    def dump_stacks(self, ranks: Collection[int], number: int) -> None:
        give_up_at = time.monotonic() + _DUMP_TIMEOUT
        for rank in ranks:
            if rank in self._stack_files:
                _empty(self._stack_files[rank])
                self.signal(rank, STACKS_SIGNAL)
                self._loop.call_later(_DUMP_QUIET, partial(self._check_dump, rank, number, 0, give_up_at))

    def close(self) -> None:
        for streams in self._streams:
            streams.close()
        for fd in self._stack_files.values():
            os.close(fd)
        self._streams, self._stack_files = [], {}

    # For engines

    def _add(self, channel: Channel, pipes: Mapping[int, str]) -> None:
        """Adds the next rank, and begins to read from it. The pipes do not block."""
        rank = len(self._streams)
        kill = partial(self.signal, rank, signal.SIGKILL)
        self._streams.append(RankStreams(self._loop, channel, pipes, partial(self._on_event, rank), kill))

    def _on_exit(self, rank: int, exited: Exited) -> None:
        """Reports the exit of a rank, after all that the rank has sent and written before."""
        self._streams[rank].read_rest()
        self._exited.add(rank)
        self._listener.on_event(rank, replace(exited, crash=self._dump(rank)))

    # What ranks send

    def _on_event(self, rank: int, event: Event, fds: Sequence[int]) -> None:
        if isinstance(event, Hello):
            self._pids[rank] = event.pid
            if fds:
                self._stack_files[rank] = fds[0]
        self._listener.on_event(rank, event)

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
