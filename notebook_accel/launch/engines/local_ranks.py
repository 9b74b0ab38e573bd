"""Ranks on this machine: sends them requests, and reads their events, their output, and their stacks.

Engines for this machine derive from `LocalRanks`. They add how ranks start, get signals, and exit.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial

from notebook_accel.events import Event, Exited, Hello, Stacks
from notebook_accel.launch.engines.contract import RanksSpec
from notebook_accel.launch.engines.ranks import Life, RankProcess, Ranks
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


class LocalRank(RankProcess):
    """A rank on this machine."""

    def __init__(self, streams: RankStreams) -> None:
        super().__init__()
        self.streams = streams
        self.stacks_file: int | None = None
        """The descriptor of the file that faulthandler writes to; `None` until the rank has sent it."""

    def stacks(self) -> str:
        """The stacks that faulthandler has written; empty if there are none."""
        return "" if self.stacks_file is None else os.pread(self.stacks_file, _MAX_DUMP, 0).decode(errors="replace")

    def empty_stacks_file(self) -> None:
        """Empties it and resets its offset, which the rank shares because it shares the open file."""
        if self.stacks_file is not None:
            os.ftruncate(self.stacks_file, 0)
            os.lseek(self.stacks_file, 0, os.SEEK_SET)

    def close(self) -> None:
        """Frees all descriptors."""
        self.streams.close()
        if self.stacks_file is not None:
            os.close(self.stacks_file)
        self.stacks_file = None


class LocalRanks(Ranks):
    """Ranks on this machine."""

    processes: list[LocalRank]

    def __init__(self, spec: RanksSpec, loop: EventLoop) -> None:
        super().__init__(spec.size, spec.rendezvous.ports, loop)
        self.processes = []

    def _call(self, ranks: Collection[int], packed: Payload) -> None:
        for rank in ranks:
            with contextlib.suppress(OSError):  # it has exited, which is reported
                payload.send(packed, self.processes[rank].streams.channel)

    def _finish(self, ranks: Collection[int]) -> None:
        for rank in ranks:
            self.processes[rank].streams.channel.finish()

    def send(self, ranks: Collection[int], event: Event) -> None:
        for rank in ranks:
            with contextlib.suppress(OSError):
                self.processes[rank].streams.send(event)

    def pause(self, rank: int) -> None:
        self.processes[rank].streams.pause()

    def resume(self, rank: int) -> None:
        if self.processes[rank].life is not Life.EXITED:
            self.processes[rank].streams.resume()

    def dump_stacks(self, ranks: Collection[int], number: int) -> None:
        give_up_at = time.monotonic() + _DUMP_TIMEOUT
        for rank in ranks:
            if self.processes[rank].stacks_file is not None:
                self.processes[rank].empty_stacks_file()
                self.signal(rank, STACKS_SIGNAL)
                self.loop.call_later(_DUMP_QUIET, partial(self._check_stacks, rank, number, 0, give_up_at))

    def _check_stacks(self, rank: int, number: int, size: int, give_up_at: float) -> None:
        """Reports a rank's stacks once the file has stopped growing."""
        process = self.processes[rank]
        stacks = process.stacks()
        if stacks and len(stacks) == size:
            process.empty_stacks_file()
            self._report(rank, Stacks(number, stack_frames.parse_dump(stacks)))
        elif process.stacks_file is not None and time.monotonic() < give_up_at:
            self.loop.call_later(_DUMP_QUIET, partial(self._check_stacks, rank, number, len(stacks), give_up_at))

    def close(self) -> None:
        for process in self.processes:
            process.close()
        super().close()

    # For engines

    def _add(self, channel: Channel, pipes: Mapping[int, str]) -> None:
        """Adds the next rank, and begins to read from it. The pipes do not block."""
        rank = len(self.processes)
        on_event, kill = partial(self._on_event, rank), partial(self.signal, rank, signal.SIGKILL)
        self.processes.append(LocalRank(RankStreams(self.loop, channel, pipes, on_event, kill)))

    def _on_event(self, rank: int, event: Event, fds: Sequence[int]) -> None:
        if fds and isinstance(event, Hello):
            self.processes[rank].stacks_file = fds[0]
        self._report(rank, event)

    def _on_exit(self, rank: int, exited: Exited) -> None:
        """Reports the exit of a rank, after all that the rank has sent and written before."""
        process = self.processes[rank]
        process.streams.read_rest()
        self._report(rank, replace(exited, crash=process.stacks()))
