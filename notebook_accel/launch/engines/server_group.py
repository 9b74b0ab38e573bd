"""The driver's connection to one group of processes on a fork server: starts them, signals them, reads their exits."""

from __future__ import annotations

import contextlib
import os
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from notebook_accel.errors import LaunchError
from notebook_accel.events import Exited
from notebook_accel.launch.engines.contract import GroupSpec
from notebook_accel.launch.engines.server_connection import Server
from notebook_accel.launch.system.limits import explain_refusal
from notebook_accel.launch.wire.event_loop import EventLoop
from notebook_accel.launch.wire.rank_streams import PIPE_SIZE
from notebook_accel.launch.wire.stream import Channel, close_all, pair

_DRIVER = uuid.uuid4().hex
"""By which a rendezvous tells an earlier launch of this process from another process with the same node rank."""


class ServerGroup:
    """A group of processes.

    Args:
        server: The server.
        channel: The socket of the group, whose other end the server has.
        spec: The ranks.
        size: The number of processes.
    """

    def __init__(self, server: Server, channel: Channel, spec: GroupSpec, size: int) -> None:
        self._server = server
        self._channel = channel
        self._spec = spec
        self._size = size
        self._running = set(range(size))
        self._loop: EventLoop | None = None

    @contextlib.contextmanager
    def starting(self) -> Iterator[None]:
        """Opens the rendezvous; processes are started within. Closes the group if they cannot be."""
        try:
            self._open_rendezvous()
            yield
        except BaseException as error:
            self.close()
            if isinstance(error, ConnectionError):
                raise LaunchError(self._server.why_it_ended(), engine_lost=True) from error
            if isinstance(error, OSError):
                raise LaunchError(f"{self._spec.size} ranks could not be started: {explain_refusal(error)}") from error
            raise
        finally:
            if self._spec.rendezvous.listener is not None:
                self._spec.rendezvous.listener.close()

    def start(self, rank: int, environment: Mapping[str, str]) -> tuple[Channel, dict[int, str]]:
        """Starts a process; returns its channel, and the descriptors and names of its output pipes."""
        own_end, rank_end = pair()
        out, err = output_pipe(), output_pipe()
        spec = self._spec
        order = {
            "op": "rank",
            "rank": rank,
            "env": dict(environment),
            "heartbeat": spec.heartbeat,
            "pace": spec.report_interval,
        }
        try:
            self._channel.send(order, fds=[rank_end.fileno(), out[1], err[1]])
        except OSError:
            own_end.close()
            close_all([out[0], err[0]])
            raise
        finally:
            rank_end.close()
            close_all([out[1], err[1]])
        return Channel(own_end), {out[0]: "stdout", err[0]: "stderr"}

    def watch(
        self, loop: EventLoop, on_exit: Callable[[int, Exited], object], on_failure: Callable[[LaunchError], object]
    ) -> None:
        """Has the event loop report each exit; or that processes could not be started, or that the server has ended."""
        self._loop = loop
        loop.register(self._channel, lambda: self._receive(on_exit, on_failure))

    def _receive(self, on_exit: Callable[[int, Exited], object], on_failure: Callable[[LaunchError], object]) -> None:
        messages = self._channel.receive(wait=False)
        if messages is None:
            self._stop_watching()
            on_failure(LaunchError(self._server.why_it_ended(), engine_lost=True))
        for message in messages or ():
            header = message.header
            if "error" in header:
                self._stop_watching()
                on_failure(LaunchError(header["error"]))
                return
            self._running.discard(header["rank"])
            if not self._running:
                self._stop_watching()
            on_exit(header["rank"], exited(header))

    def _stop_watching(self) -> None:
        if self._loop is not None:
            self._loop.unregister(self._channel)

    def signal(self, rank: int, signum: int) -> None:
        self._send({"op": "signal", "rank": rank, "signum": int(signum)})
        self._server.wake()

    def close_store(self) -> None:
        self._send({"op": "close_store"})

    def expect_ends(self) -> None:
        self._send({"op": "expect_ends"})

    def close(self) -> None:
        """Kills the processes that are left."""
        self._stop_watching()
        self._channel.close()
        self._server.wake()

    def _send(self, order: Mapping[str, object]) -> None:
        with contextlib.suppress(OSError):  # the server has ended, which `_receive` reports
            self._channel.send(order)

    def _open_rendezvous(self) -> None:
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
                "size": self._size,
            },
            fds=[] if rendezvous.listener is None else [rendezvous.listener.fileno()],
        )


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
