"""Ranks that live together: what is known of them beyond a single call, and what can be said to each."""

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

_PARTING = 2.0
"""Seconds that ranks have to end by themselves, with all that they have registered for that moment."""


class RankGroup:
    """A group of ranks, from its start to its end. One call runs on it at a time; `Run` is the pump of a call.

    Args:
        engine: Where the ranks live.
        spec: Who they are.

    Raises:
        LaunchError: They cannot be started.
    """

    def __init__(self, engine: Engine, spec: GroupSpec) -> None:
        self._ports = spec.meeting.ports
        try:
            self.ranks = engine.start(spec)
        except BaseException:
            self._ports.close()
            raise
        self.size = spec.size
        self.busy: set[int] = set()
        """Ranks that have been given a call, and have not answered."""
        self.exited: dict[int, Exited] = {}
        """Ranks that have ended."""
        self.stacks: dict[int, int] = {}
        """Descriptors of the files that ranks write their stacks to."""
        self._hellos: dict[int, Hello] = {}
        self._beats: dict[int, Heartbeat] = {}
        self._ooms = _oom_kills()

    # To a rank

    def call(self, rank: int, payload: Payload) -> None:
        """Hands a call to a rank."""
        self.busy.add(rank)
        self.ranks.call(rank, payload)

    def disconnect(self) -> None:
        """Has all ranks, busy or not, cut their connections to each other: each does so for those it has accepted."""
        for rank in range(self.size):
            self._say(rank, Disconnect())

    def answer(self, rank: int, text: str | None) -> None:
        """Gives a rank the line that it has asked for."""
        self._say(rank, Answer(text))

    def _say(self, rank: int, event: Event) -> None:
        with contextlib.suppress(OSError):  # it has just ended
            self.ranks.channels[rank].send(*to_wire(event))

    # From the ranks

    def heard(self, rank: int, event: Event, fds: Sequence[int] = ()) -> None:
        """Takes in what a rank has said, as far as it is true of more than one call."""
        if isinstance(event, Hello):
            self._hellos[rank] = event
            if fds:
                self.stacks[rank] = fds[0]
        elif isinstance(event, Heartbeat):
            self._beats[rank] = event
        elif isinstance(event, Exited):
            self._note_exit(rank, event)
        elif isinstance(event, (Returned, Failed)):
            self.busy.discard(rank)

    def changes(self) -> list[tuple[int, Exited]]:
        """The ranks that have ended since the last time.

        Raises:
            LaunchError: The ranks could not be started.
        """
        found = self.ranks.changes()
        for rank, exited in found:
            self._note_exit(rank, exited)
        return found

    def _note_exit(self, rank: int, exited: Exited) -> None:
        self.exited[rank] = exited
        self.busy.discard(rank)

    def catch_up(self) -> None:
        """Takes in what has happened since the last call: a rank may have answered late, or ended.

        Raises:
            LaunchError: What starts the ranks has ended.
        """
        while heard := self._with_news():
            for rank in heard:
                for message in self.ranks.channels[rank].receive(wait=False) or ():
                    self.heard(rank, from_wire(message.header, message.blobs), message.fds)
        self.changes()

    def _with_news(self) -> list[int]:
        """The ranks that have said something, or closed their channel. One look, however many there are."""
        poll = select.poll()
        ranks = {channel.fileno(): rank for rank, channel in enumerate(self.ranks.channels) if channel.is_open}
        for fd in ranks:
            poll.register(fd, select.POLLIN)
        return [ranks[fd] for fd, _ in poll.poll(0)]

    def known(self, rank: int) -> Iterator[Event]:
        """What is known of a rank when a call begins."""
        yield from (said[rank] for said in (self._hellos, self._beats) if rank in said)

    def oom_killed(self) -> bool:
        """Whether the system has ended a process for want of memory since the ranks started, or this was asked."""
        before, self._ooms = self._ooms, _oom_kills()
        return self._ooms > before

    def pipes(self, rank: int) -> Iterator[tuple[int, str]]:
        """The descriptors that a rank's output comes from, each with the name of its stream."""
        if self.ranks.outputs:
            yield from zip(self.ranks.outputs[rank], ("stdout", "stderr"), strict=True)

    def read_stacks(self, rank: int) -> str:
        """What a rank has written to its stacks file."""
        fd = self.stacks.get(rank)
        return "" if fd is None else os.pread(fd, 2**20, 0).decode(errors="replace")

    # The end

    def stop(self) -> None:
        """Lets the ranks end as a program ends, those that do not at once; and frees everything."""
        for channel in self.ranks.channels:
            channel.finish()
        deadline = time.monotonic() + _PARTING
        with contextlib.suppress(Exception), selectors.DefaultSelector() as selector:
            selector.register(self.ranks, selectors.EVENT_READ)
            for channel in self.ranks.channels:
                selector.register(channel, selectors.EVENT_READ)
            while len(self.exited) < self.size and not self.busy and (left := deadline - time.monotonic()) > 0:
                selector.select(left)
                self.catch_up()
        self.close()

    def close(self) -> None:
        """Ends whatever is left at once, and frees everything."""
        self.ranks.close()
        self._ports.close()
        for fd in self.stacks.values():
            os.close(fd)
        self.stacks.clear()


def _oom_kills() -> int:
    """How many processes the system has ended so far because memory had run out."""
    try:
        with open("/proc/vmstat", "rb", buffering=0) as file:
            found = re.search(rb"^oom_kill (\d+)", file.read(), re.MULTILINE)
    except OSError:
        return 0
    return int(found[1]) if found else 0
