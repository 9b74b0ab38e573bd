"""The driver's side of one group of ranks that a server has started."""

from __future__ import annotations

import contextlib
import os
import sys
import time
import uuid
from collections.abc import Mapping
from typing import Protocol

from notebook_accel.errors import LaunchError
from notebook_accel.events import Exited
from notebook_accel.launch.engines.contract import GroupSpec
from notebook_accel.launch.wire import constants, payload
from notebook_accel.launch.wire.payload import Payload
from notebook_accel.launch.wire.stream import Channel, pair

_PIPE_SIZE = 2**20
"""Capacity of a rank's output pipes in bytes, where the system allows it: a rank that writes more has to wait."""


_DRIVER = uuid.uuid4().hex
"""By which a rendezvous tells an earlier launch of this process from another process with the same node rank."""


class Server(Protocol):
    """The process that starts the ranks."""

    def why_it_ended(self) -> str:
        """Why it has ended, according to its log."""


class ServerRanks:
    """One group of ranks on a server."""

    def __init__(self, server: Server, group: Channel, spec: GroupSpec) -> None:
        self._server = server
        self._group = group
        self._running = set(range(spec.size))
        self.channels: list[Channel] = []
        self.outputs: list[tuple[int, int]] = []
        try:
            self._send_rendezvous(spec)
            for rank, environment in enumerate(spec.environments):
                self._start(rank, environment, spec)
        except OSError as error:
            self.close()
            if isinstance(error, ConnectionError):
                raise LaunchError(server.why_it_ended(), engine_lost=True) from error
            raise LaunchError(f"{spec.size} ranks could not be started: {error}") from error
        except BaseException:
            self.close()
            raise
        finally:
            if spec.rendezvous.listener is not None:
                spec.rendezvous.listener.close()

    def fileno(self) -> int:
        return self._group.fileno()

    def new_exits(self) -> list[tuple[int, Exited]]:
        messages = self._group.receive(wait=False)
        if messages is None:
            if self._running:
                raise LaunchError(self._server.why_it_ended(), engine_lost=True)
            return []
        ended = []
        for message in messages:
            header = message.header
            if "error" in header:
                raise LaunchError(header["error"])
            status = header["status"]
            exited = Exited(
                code=status if status is not None and status >= 0 else None,
                signal=-status if status is not None and status < 0 else None,
                at=min(header["at"], time.time()),  # the clock of another node is known to a tenth of a second
                peak_resident=header["peak"],
                lost=header.get("lost", ""),
            )
            self._running.discard(header["rank"])
            ended.append((header["rank"], exited))
        return ended

    def call(self, rank: int, packed: Payload) -> None:
        send_call(self.channels[rank], packed)

    def signal(self, rank: int, signum: int) -> None:
        with contextlib.suppress(OSError):
            self._group.send({"op": "signal", "rank": rank, "signum": int(signum)})

    def close_store(self) -> None:
        self._send("close_store")

    def expect_ends(self) -> None:
        self._send("expect_ends")

    def close(self) -> None:
        self._group.close()
        for channel in self.channels:
            channel.close()
        for pipes in self.outputs:
            for fd in pipes:
                os.close(fd)
        self.outputs = []

    def _send(self, operation: str) -> None:
        with contextlib.suppress(OSError):
            self._group.send({"op": operation})

    def _send_rendezvous(self, spec: GroupSpec) -> None:
        rendezvous = spec.rendezvous
        self._group.send(
            {
                "op": "meet",
                "driver": _DRIVER,
                "host": rendezvous.host,
                "port": rendezvous.port,
                "node_rank": rendezvous.node_rank,
                "num_nodes": rendezvous.num_nodes,
                "run_id": rendezvous.run_id,
                "attempt": rendezvous.attempt,
                "join_timeout": rendezvous.join_timeout,
                "size": spec.size,
            },
            fds=[] if rendezvous.listener is None else [rendezvous.listener.fileno()],
        )

    def _start(self, rank: int, environment: Mapping[str, str], spec: GroupSpec) -> None:
        own_end, rank_end = pair()
        self.channels.append(Channel(own_end))
        out, err = output_pipe(), output_pipe()
        self.outputs.append((out[0], err[0]))
        try:
            self._group.send(
                {
                    "op": "rank",
                    "rank": rank,
                    "env": dict(environment),
                    "heartbeat": spec.heartbeat,
                    "pace": constants.report_interval(spec.size) if spec.pace is None else spec.pace,
                },
                fds=[rank_end.fileno(), out[1], err[1]],
            )
        finally:
            rank_end.close()
            os.close(out[1])
            os.close(err[1])


def send_call(channel: Channel, packed: Payload) -> None:
    """Sends a call to a rank."""
    with contextlib.suppress(OSError):  # the rank has exited already: `new_exits` reports it
        payload.send(packed, channel)


def output_pipe() -> tuple[int, int]:
    """A pipe for output, whose reading end does not block."""
    ends = os.pipe()
    os.set_blocking(ends[0], False)
    if sys.platform == "linux":
        import fcntl

        with contextlib.suppress(OSError):  # beyond the system's limit for a user
            fcntl.fcntl(ends[1], fcntl.F_SETPIPE_SZ, _PIPE_SIZE)
    return ends
