"""A started group of ranks: the state of each across calls, and the messages that can be sent to it."""

from __future__ import annotations

import contextlib
import os
import re
import select
import selectors
import time
from collections.abc import Iterator, Sequence

from notebook_accel.events import (
    Answer,
    Disconnect,
    Event,
    Exited,
    Failed,
    Heartbeat,
    Hello,
    Returned,
    from_wire,
    to_wire,
)
from notebook_accel.launch.engines.contract import Engine, GroupSpec
from notebook_accel.launch.wire.payload import Payload

_EXIT_TIMEOUT = 2.0
"""How many seconds ranks have to exit by themselves and run their exit handlers."""


class RankGroup:
    """A group of ranks, from its start to its end. One call runs on it at a time, by a `CallRunner`.

    Args:
        engine: Starts the ranks.
        spec: The ranks to start.

    Raises:
        LaunchError: They cannot be started.
    """

    def __init__(self, engine: Engine, spec: GroupSpec) -> None:
        self._ports = spec.rendezvous.ports
        try:
            self.ranks = engine.start(spec)
        except BaseException:
            self._ports.close()
            raise
        self.size = spec.size
        self.busy: set[int] = set()
        """Ranks that have been sent a call but have not answered."""
        self.exited: dict[int, Exited] = {}
        """Ranks that have exited."""
        self.stacks: dict[int, int] = {}
        """Descriptors of the files that ranks write their stacks to."""
        self._hellos: dict[int, Hello] = {}
        self._heartbeats: dict[int, Heartbeat] = {}
        self._oom_kills_before = _oom_kills()

    # To a rank

    def call(self, rank: int, payload: Payload) -> None:
        """Sends a call to a rank."""
        self.busy.add(rank)
        self.ranks.call(rank, payload)

    def disconnect(self) -> None:
        """Makes all ranks, busy or not, cut their connections to each other. Each closes those that it has accepted."""
        for rank in range(self.size):
            self._send(rank, Disconnect())

    def send_input(self, rank: int, text: str | None) -> None:
        """Sends a rank the line of input that it has requested; `None` if there is none."""
        self._send(rank, Answer(text))

    def _send(self, rank: int, event: Event) -> None:
        with contextlib.suppress(OSError):  # it has just exited
            self.ranks.channels[rank].send(*to_wire(event))

    # From the ranks

    def on_event(self, rank: int, event: Event, fds: Sequence[int] = ()) -> None:
        """Records the part of a rank's event that outlasts the current call."""
        if isinstance(event, Hello):
            self._hellos[rank] = event
            if fds:
                self.stacks[rank] = fds[0]
        elif isinstance(event, Heartbeat):
            self._heartbeats[rank] = event
        elif isinstance(event, Exited):
            self._note_exit(rank, event)
        elif isinstance(event, (Returned, Failed)):
            self.busy.discard(rank)

    def new_exits(self) -> list[tuple[int, Exited]]:
        """The ranks that have exited since the last call of this method.

        Raises:
            LaunchError: The ranks could not be started.
        """
        found = self.ranks.new_exits()
        for rank, exited in found:
            self._note_exit(rank, exited)
        return found

    def _note_exit(self, rank: int, exited: Exited) -> None:
        self.exited[rank] = exited
        self.busy.discard(rank)

    def catch_up(self) -> None:
        """Handles late answers and exits of ranks since the last call ended.

        Raises:
            LaunchError: The process that starts the ranks has ended.
        """
        while readable := self._readable_ranks():
            for rank in readable:
                for message in self.ranks.channels[rank].receive(wait=False) or ():
                    self.on_event(rank, from_wire(message.header, message.blobs), message.fds)
        self.new_exits()

    def _readable_ranks(self) -> list[int]:
        """The ranks whose channel has a message or is closed, by a single `poll` for all of them."""
        poll = select.poll()
        ranks = {channel.fileno(): rank for rank, channel in enumerate(self.ranks.channels) if channel.is_open}
        for fd in ranks:
            poll.register(fd, select.POLLIN)
        return [ranks[fd] for fd, _ in poll.poll(0)]

    def last_events(self, rank: int) -> Iterator[Event]:
        """The events of earlier calls that a new call's job starts from."""
        yield from (latest[rank] for latest in (self._hellos, self._heartbeats) if rank in latest)

    def oom_killed(self) -> bool:
        """Whether the OOM killer has ended a process since the ranks started, or since the last call of this method."""
        before, self._oom_kills_before = self._oom_kills_before, _oom_kills()
        return self._oom_kills_before > before

    def pipes(self, rank: int) -> Iterator[tuple[int, str]]:
        """The descriptors to read a rank's output from, each with the name of its stream."""
        if self.ranks.outputs:
            yield from zip(self.ranks.outputs[rank], ("stdout", "stderr"), strict=True)

    def read_stacks(self, rank: int) -> str:
        """What a rank has written to its stacks file."""
        fd = self.stacks.get(rank)
        return "" if fd is None else os.pread(fd, 2**20, 0).decode(errors="replace")

    # The end

    def stop(self) -> None:
        """Lets idle ranks exit normally, with their exit handlers; then kills the rest and frees all resources."""
        for channel in self.ranks.channels:
            channel.finish()
        deadline = time.monotonic() + _EXIT_TIMEOUT
        with contextlib.suppress(Exception), selectors.DefaultSelector() as selector:
            selector.register(self.ranks, selectors.EVENT_READ)
            for channel in self.ranks.channels:
                selector.register(channel, selectors.EVENT_READ)
            while len(self.exited) < self.size and not self.busy and (left := deadline - time.monotonic()) > 0:
                selector.select(left)
                self.catch_up()
        self.close()

    def close(self) -> None:
        """Kills the remaining ranks and frees all resources."""
        self.ranks.close()
        self._ports.close()
        for fd in self.stacks.values():
            os.close(fd)
        self.stacks.clear()


def _oom_kills() -> int:
    """How many processes the OOM killer has ended since the system booted."""
    try:
        with open("/proc/vmstat", "rb", buffering=0) as file:
            found = re.search(rb"^oom_kill (\d+)", file.read(), re.MULTILINE)
    except OSError:
        return 0
    return int(found[1]) if found else 0
