"""The driver's side of the ranks that a fork server has started: starts them, signals them, reads how they ended."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import uuid
from collections.abc import Mapping
from typing import Any

from notebook_accel.errors import LaunchError
from notebook_accel.events import Exited, Returned
from notebook_accel.launch.engines.contract import RanksSpec
from notebook_accel.launch.engines.local_ranks import LocalRanks
from notebook_accel.launch.engines.ranks import Life
from notebook_accel.launch.engines.server_connection import Server
from notebook_accel.launch.system.limits import explain_refusal
from notebook_accel.launch.wire.constants import Streams
from notebook_accel.launch.wire.event_loop import EventLoop
from notebook_accel.launch.wire.rank_streams import PIPE_SIZE
from notebook_accel.launch.wire.stream import Channel, close_all, pair

_DRIVER = uuid.uuid4().hex
"""By which a rendezvous tells an earlier launch of this process from another process with the same node rank."""


class ServerRanks(LocalRanks):
    """Ranks that are each a process of the server.

    Args:
        server: The server.
        channel: The socket of these ranks, whose other end the server has.
        spec: The ranks.
        loop: Reads what they send.
    """

    def __init__(self, server: Server, channel: Channel, spec: RanksSpec, loop: EventLoop) -> None:
        super().__init__(spec, loop)
        self._server = server
        self._channel = channel
        self._spec = spec
        self._started = 0
        """The number of processes that have been started, and have not ended."""
        try:
            self._start()
        except BaseException as error:
            self.close()
            if isinstance(error, ConnectionError):
                raise LaunchError(server.why_it_ended(), engine_lost=True) from error
            if isinstance(error, OSError):
                raise LaunchError(f"{spec.size} ranks could not be started: {explain_refusal(error)}") from error
            raise
        finally:
            if spec.rendezvous.listener is not None:
                spec.rendezvous.listener.close()
        loop.register(channel, self._receive)

    def signal(self, rank: int, signum: int) -> None:
        """Sends a signal: an interrupt to the process itself, and any other through the server.

        A rank survives an interrupt. The server may be late on a busy machine, so that the interrupt of one cell would
        reach the rank in the next.
        """
        process = self.processes[rank]
        if signum == signal.SIGINT and process.hello is not None and process.life is not Life.EXITED:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.hello.pid, signum)
        else:
            self.signal_process(rank, signum)

    def close_store(self) -> None:
        self._request({"op": "close_store"})

    def expect_ends(self) -> None:
        self._request({"op": "expect_ends"})

    def close(self) -> None:
        self.loop.unregister(self._channel)
        self._channel.close()  # the server kills the processes that are left
        self._server.wake()
        super().close()

    # The processes, which are the ranks unless a subclass has others

    def _start(self) -> None:
        """Starts the processes.

        Raises:
            OSError: One can't be started; a `ConnectionError` if the server has ended.
        """
        self._open_rendezvous(len(self._spec.environments))
        for rank, environment in enumerate(self._spec.environments):
            self._add(*self._start_process(rank, environment))

    def _open_rendezvous(self, processes: int) -> None:
        rendezvous = self._spec.rendezvous
        self._channel.send(
            {
                "op": "open_rendezvous",
                "driver": _DRIVER,
                "host": rendezvous.host,
                "port": rendezvous.port,
                "node_rank": rendezvous.node_rank,
                "num_nodes": rendezvous.num_nodes,
                "run_id": rendezvous.run_id,
                "attempt": rendezvous.attempt,
                "join_timeout": rendezvous.join_timeout,
                "size": processes,
            },
            fds=[] if rendezvous.listener is None else [rendezvous.listener.fileno()],
        )

    def _start_process(self, number: int, environment: Mapping[str, str]) -> tuple[Channel, dict[int, str]]:
        """Starts a process; returns its channel, and the descriptors and names of its output pipes."""
        own_end, rank_end = pair()
        streams = self._spec.streams
        pipes = [] if streams is Streams.DRIVERS else [output_pipe(), output_pipe()]
        given = [] if streams is Streams.CALLS else [0] if pipes else [0, 1, 2]
        order = {
            "op": "rank",
            "rank": number,
            "env": dict(environment),
            "heartbeat": self._spec.heartbeat,
            "pace": self._spec.report_interval,
            "streams": streams.value,
        }
        try:
            self._channel.send(order, fds=[rank_end.fileno(), *given, *(writing for _, writing in pipes)])
        except OSError:
            own_end.close()
            close_all([reading for reading, _ in pipes])
            raise
        finally:
            rank_end.close()
            close_all([writing for _, writing in pipes])
        self._started += 1
        return Channel(own_end), dict(zip((reading for reading, _ in pipes), ("stdout", "stderr"), strict=False))

    def signal_process(self, number: int, signum: int) -> None:
        """Sends a signal to a process, through the server."""
        self._request({"op": "signal", "rank": number, "signum": int(signum)})
        self._server.wake()

    def _on_process_exit(self, number: int, how: Exited) -> None:
        is_script = self._spec.streams is not Streams.CALLS
        if is_script and how.code == 0 and self.processes[number].life is Life.BUSY:
            self.processes[number].streams.read_rest()
            self._report(number, Returned())  # it has ended the process itself, as with `os._exit(0)`
        self._on_exit(number, how)

    def _request(self, order: Mapping[str, object]) -> None:
        with contextlib.suppress(OSError):  # the server has ended, which `_receive` reports
            self._channel.send(order)

    def _receive(self) -> None:
        messages = self._channel.receive(wait=False)
        if messages is None:
            self.loop.unregister(self._channel)
            self.on_failure(LaunchError(self._server.why_it_ended(), engine_lost=True))
        for message in messages or ():
            header = message.header
            if "error" in header:
                self.loop.unregister(self._channel)
                self.on_failure(LaunchError(header["error"]))
                return
            self._started -= 1
            if not self._started:
                self.loop.unregister(self._channel)  # the server may end
            self._on_process_exit(header["rank"], exited(header))


def exited(header: Mapping[str, Any]) -> Exited:
    """The event of a process that has ended, from the exit status as `subprocess` gives it."""
    status = header["status"]
    return Exited(
        code=status if status >= 0 else None,
        signal=-status if status < 0 else None,
        at=header["at"],
        peak_resident=header["peak"],
    )


def output_pipe() -> tuple[int, int]:
    """A pipe for output, whose reading end does not block."""
    ends = os.pipe()
    os.set_blocking(ends[0], False)
    if sys.platform == "linux":
        import fcntl

        with contextlib.suppress(OSError):  # beyond the system's limit for a user
            fcntl.fcntl(ends[1], fcntl.F_SETPIPE_SZ, PIPE_SIZE)
    return ends
