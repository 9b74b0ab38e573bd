"""The TPU engine: a fork server starts one supervisor, which starts all ranks of a group."""

from __future__ import annotations

import contextlib
import signal

from notebook_accel.errors import LaunchError
from notebook_accel.events import Exited, Interrupt
from notebook_accel.launch.engines.contract import GroupSpec, Listener, Ranks
from notebook_accel.launch.engines.fork_server import ServerEngine
from notebook_accel.launch.engines.local_ranks import LocalRanks
from notebook_accel.launch.engines.server_group import ServerGroup, exited, output_pipe
from notebook_accel.launch.tpu.environment import PER_RANK
from notebook_accel.launch.wire.event_loop import EventLoop
from notebook_accel.launch.wire.stream import Channel, close_all, pair


class XlaEngine(ServerEngine):
    """Starts ranks by a server that has imported torch_xla."""

    def __init__(self) -> None:
        super().__init__("xla")

    def start(self, spec: GroupSpec, loop: EventLoop, listener: Listener) -> Ranks:
        return XlaRanks(self._open_group(spec, 1), spec, loop, listener)


class XlaRanks(LocalRanks):
    """The ranks of one group. Each has its channel and exit status; all end with their supervisor.

    Args:
        group: The server's group, of which the supervisor is the only process.
        spec: The ranks.
        loop: Reads what they send.
        listener: Is called with their events.
    """

    def __init__(self, group: ServerGroup, spec: GroupSpec, loop: EventLoop, listener: Listener) -> None:
        super().__init__(loop, listener)
        self._group = group
        self._running = set(range(spec.size))
        with group.starting():
            self._supervisor, pipes = group.start(0, spec.environments[0])
        try:
            for rank in range(spec.size):
                self._add_rank(rank, spec, pipes)
        except BaseException:
            self.close()
            raise
        group.watch(loop, self._on_supervisor_exit, listener.on_failure)
        loop.register(self._supervisor, self._on_supervisor)

    def signal(self, rank: int, signum: int) -> None:
        """Sends a signal. SIGKILL ends all ranks: the others would wait for the killed one in a collective."""
        if rank not in self._running:
            return
        if signum == signal.SIGKILL:
            self._group.signal(0, signum)
        elif signum == signal.SIGINT:
            self.send([rank], Interrupt())
        else:
            with contextlib.suppress(OSError):
                self._supervisor.send({"rank": rank, "signum": int(signum)})

    def close_store(self) -> None:
        self._group.close_store()

    def expect_ends(self) -> None:
        self._group.expect_ends()

    def close(self) -> None:
        self._group.close()
        self._loop.unregister(self._supervisor)
        self._supervisor.close()
        super().close()

    def _add_rank(self, rank: int, spec: GroupSpec, pipes: dict[int, str]) -> None:
        """Gives a rank its channel and its pipes; rank 0 shares the supervisor's pipes."""
        own_end, rank_end = pair()
        ends: list[int] = []
        if rank:
            out, err = output_pipe(), output_pipe()
            pipes, ends = {out[0]: "stdout", err[0]: "stderr"}, [out[1], err[1]]
        self._add(Channel(own_end), pipes)
        own = {name: spec.environments[rank][name] for name in PER_RANK if name in spec.environments[rank]}
        with contextlib.suppress(OSError):  # the supervisor has died already, which `_on_supervisor_exit` handles
            self._supervisor.send({"rank": rank, "size": spec.size, "env": own}, fds=[rank_end.fileno(), *ends])
        rank_end.close()
        close_all(ends)

    def _on_supervisor_exit(self, _: int, how: Exited) -> None:
        """Handles the exit of the supervisor, which can no longer report those of its ranks."""
        while self._supervisor.is_open and self._supervisor.has_data():
            self._on_supervisor()
        for rank in sorted(self._running):
            self._end(rank, how)

    def _on_supervisor(self) -> None:
        messages = self._supervisor.receive(wait=False)
        if messages is None:
            self._loop.unregister(self._supervisor)
        for message in messages or ():
            if "error" in message.header:
                self._listener.on_failure(LaunchError(message.header["error"]))
            else:
                self._end(message.header["rank"], exited(message.header))

    def _end(self, rank: int, how: Exited) -> None:
        self._running.discard(rank)
        self._on_exit(rank, how)
