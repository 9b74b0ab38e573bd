"""The driver's side of one group of ranks that a fork server has started."""

from __future__ import annotations

import contextlib
import os
import signal

from notebook_accel.launch.engines.contract import GroupSpec, Listener
from notebook_accel.launch.engines.local_ranks import LocalRanks
from notebook_accel.launch.engines.server_group import ServerGroup
from notebook_accel.launch.wire.event_loop import EventLoop


class ServerRanks(LocalRanks):
    """Ranks that are each a process of the server."""

    def __init__(self, group: ServerGroup, spec: GroupSpec, loop: EventLoop, listener: Listener) -> None:
        super().__init__(loop, listener)
        self._group = group
        try:
            with group.starting():
                for rank, environment in enumerate(spec.environments):
                    self._add(*group.start(rank, environment))
        except BaseException:
            super().close()
            raise
        group.watch(loop, self._on_exit, listener.on_failure)

    def signal(self, rank: int, signum: int) -> None:
        """Sends a signal: an interrupt to the process itself, and any other through the server.

        A rank survives an interrupt. The server may be late on a busy machine, so that the interrupt of one cell would
        reach the rank in the next.
        """
        if signum == signal.SIGINT and rank in self._pids and rank not in self._exited:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pids[rank], signum)
        else:
            self._group.signal(rank, signum)

    def close_store(self) -> None:
        self._group.close_store()

    def expect_ends(self) -> None:
        self._group.expect_ends()

    def close(self) -> None:
        self._group.close()
        super().close()
