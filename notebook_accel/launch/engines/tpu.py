"""The TPU engine: a fork server starts one supervisor, which starts all ranks."""

from __future__ import annotations

import contextlib
import signal

from notebook_accel.errors import LaunchError
from notebook_accel.events import Exited, Interrupt
from notebook_accel.launch.engines.fork_server import ServerEngine
from notebook_accel.launch.engines.ranks import Life
from notebook_accel.launch.engines.server_ranks import ServerRanks, exited, output_pipe
from notebook_accel.launch.tpu.environment import PER_RANK
from notebook_accel.launch.wire.stream import Channel, close_all, pair


class XlaRanks(ServerRanks):
    """Ranks whose supervisor is the only process of the server.

    Each has its own channel and exit status. All end with the supervisor.
    """

    _supervisor: Channel | None = None

    def _start(self) -> None:
        self._open_rendezvous(1)
        self._supervisor, pipes = self._start_process(0, self._spec.environments[0])
        for rank in range(self.size):
            self._add_rank(rank, self._supervisor, pipes)
        self.loop.register(self._supervisor, self._on_supervisor)

    def signal(self, rank: int, signum: int) -> None:
        """Sends a signal. SIGKILL ends all ranks: the others would wait for the killed one in a collective."""
        if self.processes[rank].life is Life.EXITED:
            return
        if signum == signal.SIGKILL:
            self.signal_process(0, signum)
        elif signum == signal.SIGINT:
            self.send([rank], Interrupt())
        else:
            assert self._supervisor is not None
            with contextlib.suppress(OSError):
                self._supervisor.send({"rank": rank, "signum": int(signum)})

    def close(self) -> None:
        super().close()
        if self._supervisor is not None:
            self.loop.unregister(self._supervisor)
            self._supervisor.close()

    def _add_rank(self, rank: int, supervisor: Channel, pipes: dict[int, str]) -> None:
        """Gives a rank its channel and its pipes; rank 0 shares the supervisor's pipes."""
        own_end, rank_end = pair()
        ends: list[int] = []
        if rank:
            out, err = output_pipe(), output_pipe()
            pipes, ends = {out[0]: "stdout", err[0]: "stderr"}, [out[1], err[1]]
        self._add(Channel(own_end), pipes)
        environment = self._spec.environments[rank]
        own = {name: environment[name] for name in PER_RANK if name in environment}
        with contextlib.suppress(OSError):  # the supervisor has died already, which `_on_process_exit` handles
            supervisor.send({"rank": rank, "size": self.size, "env": own}, fds=[rank_end.fileno(), *ends])
        rank_end.close()
        close_all(ends)

    def _on_process_exit(self, number: int, how: Exited) -> None:
        """Handles the exit of the supervisor, which can no longer report those of its ranks."""
        assert self._supervisor is not None
        while self._supervisor.is_open and self._supervisor.has_data():
            self._on_supervisor()
        for rank in {*range(self.size)}.difference(self.exited):
            self._on_exit(rank, how)

    def _on_supervisor(self) -> None:
        assert self._supervisor is not None
        messages = self._supervisor.receive(wait=False)
        if messages is None:
            self.loop.unregister(self._supervisor)
        for message in messages or ():
            if "error" in message.header:
                self.on_failure(LaunchError(message.header["error"]))
            else:
                self._on_exit(message.header["rank"], exited(message.header))


class XlaEngine(ServerEngine):
    """Starts ranks by a server that has imported torch_xla."""

    _ranks = XlaRanks

    def __init__(self) -> None:
        super().__init__("xla")
