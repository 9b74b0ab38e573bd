"""The kernel's hold on one group of ranks that a server has started."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from typing import Protocol

from notebook_accel.errors import LaunchError
from notebook_accel.events import Exited
from notebook_accel.launch.engines.contract import GroupSpec
from notebook_accel.launch.wire import constants, payload
from notebook_accel.launch.wire.payload import Payload
from notebook_accel.launch.wire.stream import Channel, pair

_PIPE = 2**20
"""Bytes of output that a rank may be ahead of the notebook, where the system allows it."""


class Server(Protocol):
    """What starts the ranks."""

    def why_it_ended(self) -> str:
        """Why it has ended, as far as it has said."""


class ServerRanks:
    """One group on a server."""

    def __init__(self, server: Server, group: Channel, spec: GroupSpec) -> None:
        self._server = server
        self._group = group
        self._unsettled = set(range(spec.size))
        self.channels: list[Channel] = []
        self.outputs: list[tuple[int, int]] = []
        try:
            self._meet(spec)
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
            if spec.meeting.listener is not None:
                spec.meeting.listener.close()

    def fileno(self) -> int:
        return self._group.fileno()

    def changes(self) -> list[tuple[int, Exited]]:
        messages = self._group.receive(wait=False)
        if messages is None:
            if self._unsettled:
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
                at=header["at"],
                peak_resident=header["peak"],
                lost=header.get("lost", ""),
            )
            self._unsettled.discard(header["rank"])
            ended.append((header["rank"], exited))
        return ended

    def call(self, rank: int, packed: Payload) -> None:
        hand(self.channels[rank], packed)

    def signal(self, rank: int, signum: int) -> None:
        with contextlib.suppress(OSError):
            self._group.send({"op": "signal", "rank": rank, "signum": int(signum)})

    def close_store(self) -> None:
        self._say("close_store")

    def expect_ends(self) -> None:
        self._say("expect_ends")

    def close(self) -> None:
        self._group.close()
        for channel in self.channels:
            channel.close()
        for pipes in self.outputs:
            for fd in pipes:
                os.close(fd)
        self.outputs = []

    def _say(self, operation: str) -> None:
        with contextlib.suppress(OSError):
            self._group.send({"op": operation})

    def _meet(self, spec: GroupSpec) -> None:
        meeting = spec.meeting
        self._group.send(
            {
                "op": "meet",
                "host": meeting.host,
                "port": meeting.port,
                "node_rank": meeting.node_rank,
                "num_nodes": meeting.num_nodes,
                "run_id": meeting.run_id,
                "attempt": meeting.attempt,
                "join_timeout": meeting.join_timeout,
                "size": spec.size,
            },
            fds=[] if meeting.listener is None else [meeting.listener.fileno()],
        )

    def _start(self, rank: int, environment: Mapping[str, str], spec: GroupSpec) -> None:
        ours, theirs = pair()
        self.channels.append(Channel(ours))
        out, err = pipe(), pipe()
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
                fds=[theirs.fileno(), out[1], err[1]],
            )
        finally:
            theirs.close()
            os.close(out[1])
            os.close(err[1])


def hand(channel: Channel, packed: Payload) -> None:
    """Sends a call to a rank."""
    with contextlib.suppress(OSError):  # this rank has died already: `changes` tells
        payload.send(packed, channel)


def pipe() -> tuple[int, int]:
    """A pipe for output: what is read from does not block."""
    ends = os.pipe()
    os.set_blocking(ends[0], False)
    if sys.platform == "linux":
        import fcntl

        with contextlib.suppress(OSError):  # past what the system grants one user
            fcntl.fcntl(ends[1], fcntl.F_SETPIPE_SZ, _PIPE)
    return ends
