"""Forks of the server that wait to become ranks, or to supervise some, so that a launch need not wait for forks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from notebook_accel.launch.server import forking
from notebook_accel.launch.wire.stream import Channel, Message, pair

_MOST = 8


class WarmRanks:
    """As many as the largest launch has needed, up to 8. They are the server's children like the ranks.

    Args:
        stand_by: What a spare does, with the channel on which it hears what it is to become, and with its parent.
        first: How many there are before a launch has told how many it needs.
    """

    def __init__(self, stand_by: Callable[[Channel, int], object], first: int) -> None:
        self._stand_by = stand_by
        self._channels: dict[int, Channel] = {}
        """By process: where each hears what it is to become."""
        self._target = first

    @property
    def are_too_few(self) -> bool:
        """Whether one more is wanted."""
        return len(self._channels) < self._target

    def add(self) -> None:
        """Forks one more; where the system refuses, no more are wanted until the next launch."""
        local, remote = pair()
        try:
            pid = forking.fork(lambda parent: self._stand_by(Channel(remote), parent), without=local)
        except OSError:
            local.close()
            self._target = len(self._channels)
        else:
            self._channels[pid] = Channel(local)
        remote.close()

    def expect(self, ranks: int) -> None:
        """Learns how many ranks a launch has."""
        self._target = min(max(self._target, ranks), _MOST)

    def assign(self, start: Message) -> int | None:
        """Has one become a rank; returns its process, or `None` if there is none left."""
        if not self._channels:
            return None
        pid, channel = self._channels.popitem()
        # It has taken all already, or has just been killed: its death will be told as the rank's.
        with contextlib.suppress(ConnectionError):
            channel.send(start.header, fds=start.fds)
        channel.close()
        return pid

    def __contains__(self, pid: int) -> bool:
        return pid in self._channels

    def discard(self, pid: int) -> None:
        """Strikes off one that has ended, if it is one."""
        if pid in self._channels:
            self._channels.pop(pid).close()
            self._target -= 1  # whatever has ended it may end the next; the next launch asks for more

    def release(self) -> None:
        """Closes what this process holds of them."""
        for channel in self._channels.values():
            channel.close()
