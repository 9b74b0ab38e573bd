"""Warm ranks: forks of the server that wait to become ranks (or TPU supervisors), so that a launch need not fork."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from notebook_accel.launch.server import forking
from notebook_accel.launch.wire.stream import Channel, Message, pair

_MOST = 32


class WarmRanks:
    """As many as the largest launch so far has needed, up to 32. Like the ranks, they are children of the server.

    Args:
        wait_for_launch: What each runs, given the channel on which it receives the rank to become, and its parent.
        first: How many to keep before the first launch.
    """

    def __init__(self, wait_for_launch: Callable[[Channel, int], object], first: int) -> None:
        self._wait_for_launch = wait_for_launch
        self._channels: dict[int, Channel] = {}
        """By process ID: where each receives the rank that it is to become."""
        self._target = first

    @property
    def are_too_few(self) -> bool:
        """Whether to fork another."""
        return len(self._channels) < self._target

    def add(self) -> None:
        """Forks one more. If the system refuses, the target is lowered until the next launch."""
        local, remote = pair()
        try:
            pid = forking.fork(lambda parent: self._wait_for_launch(Channel(remote), parent), without=local)
        except OSError:
            local.close()
            self._target = len(self._channels)
        else:
            self._channels[pid] = Channel(local)
        remote.close()

    def expect(self, ranks: int) -> None:
        """Raises the target to the number of ranks of a launch."""
        self._target = min(max(self._target, ranks), _MOST)

    def expect_none(self) -> None:
        """Keeps no more of them, because no launch will follow."""
        self._target = 0

    def assign(self, start: Message) -> int | None:
        """Makes one of them a rank. Returns its process ID, or `None` if none is left."""
        if not self._channels:
            return None
        pid, channel = self._channels.popitem()
        # It may have been killed just now: its end is then reported as the rank's.
        with contextlib.suppress(ConnectionError):
            channel.send(start.header, fds=start.fds)
        channel.close()
        return pid

    def __contains__(self, pid: int) -> bool:
        return pid in self._channels

    def discard(self, pid: int) -> None:
        """Removes a process that has ended, if it is a warm rank."""
        if pid in self._channels:
            self._channels.pop(pid).close()
            self._target -= 1  # what ended it may end its replacement too; the next launch raises the target again

    def release(self) -> None:
        """Closes their channels, in a fork of the server."""
        for channel in self._channels.values():
            channel.close()
