"""The kernel's half: an engine beside the others, whose server starts one supervisor for all ranks of a group."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from dataclasses import replace

from notebook_accel.errors import LaunchError
from notebook_accel.events import Exited, Interrupt, to_wire
from notebook_accel.launch.engines.contract import GroupSpec
from notebook_accel.launch.engines.fork_server import ServerEngine
from notebook_accel.launch.engines.server_ranks import ServerRanks, hand, pipe
from notebook_accel.launch.tpu.environment import PER_RANK
from notebook_accel.launch.wire.payload import Payload
from notebook_accel.launch.wire.stream import Channel, Message, pair


class XlaEngine(ServerEngine):
    """Starts ranks through a server that has torch_xla imported."""

    def __init__(self) -> None:
        super().__init__("xla")

    def start(self, spec: GroupSpec) -> XlaRanks:  # type: ignore[override]  # another class of ranks
        return XlaRanks(self, spec)

    def start_supervisor(self, spec: GroupSpec) -> ServerRanks:
        """Starts the one process of a group that the server knows of, as if it were a rank."""
        return ServerRanks(*self._open(spec), replace(spec, environments=spec.environments[:1]))


class XlaRanks:
    """The ranks of one group. They are told apart here, and share the supervisor and its end."""

    def __init__(self, engine: XlaEngine, spec: GroupSpec) -> None:
        self._supervisor = engine.start_supervisor(spec)
        self._control = self._supervisor.channels[0]
        self._unsettled = set(range(spec.size))
        self.channels: list[Channel] = []
        self.outputs: list[tuple[int, int]] = []
        self._news = select.epoll()
        self._news.register(self._supervisor, select.EPOLLIN)
        self._news.register(self._control, select.EPOLLIN)
        try:
            for rank in range(spec.size):
                self._slot(rank, spec)
        except OSError:  # it has died already: `changes` tells
            pass
        except BaseException:
            self.close()
            raise

    def fileno(self) -> int:
        return self._news.fileno()

    def changes(self) -> list[tuple[int, Exited]]:
        ends = self._supervisor.changes() if self._unsettled else []
        found = [self._take(message) for message in self._heard()]
        for _, exited in ends:  # what it has not told of its ranks it cannot tell any more
            found += [(rank, exited) for rank in sorted(self._unsettled)]
            self._unsettled.clear()
        return found

    def call(self, rank: int, payload: Payload) -> None:
        hand(self.channels[rank], payload)

    def signal(self, rank: int, signum: int) -> None:
        """Sends a signal. A kill ends all ranks: those that are left would wait for the others in a collective."""
        if rank not in self._unsettled:
            return
        with contextlib.suppress(OSError):
            if signum == signal.SIGKILL:
                self._supervisor.signal(0, signum)
            elif signum == signal.SIGINT:
                self.channels[rank].send(*to_wire(Interrupt()))
            else:
                self._control.send({"rank": rank, "signum": int(signum)})

    def close_store(self) -> None:
        self._supervisor.close_store()

    def expect_ends(self) -> None:
        self._supervisor.expect_ends()

    def close(self) -> None:
        self._news.close()
        self._supervisor.close()
        for channel in self.channels:
            channel.close()
        for pipes in self.outputs[1:]:
            for fd in pipes:
                os.close(fd)
        self.outputs = []

    def _slot(self, rank: int, spec: GroupSpec) -> None:
        """Gives a rank its channel and its pipes; the first shares those of the supervisor."""
        ours, theirs = pair()
        self.channels.append(Channel(ours))
        ends: list[int] = []
        if rank:
            out, err = pipe(), pipe()
            self.outputs.append((out[0], err[0]))
            ends = [out[1], err[1]]
        else:
            self.outputs.append(self._supervisor.outputs[0])
        own = {name: spec.environments[rank][name] for name in PER_RANK if name in spec.environments[rank]}
        try:
            self._control.send({"rank": rank, "size": spec.size, "env": own}, fds=[theirs.fileno(), *ends])
        finally:
            theirs.close()
            for fd in ends:
                os.close(fd)

    def _heard(self) -> list[Message]:
        found: list[Message] = []
        while self._control.is_open and self._control.has_data():
            found += self._control.receive(wait=False) or ()
        if not self._control.is_open:
            with contextlib.suppress(OSError, ValueError):
                self._news.unregister(self._control)
        return found

    def _take(self, message: Message) -> tuple[int, Exited]:
        header = message.header
        if "error" in header:
            raise LaunchError(header["error"])
        status = header["status"]
        self._unsettled.discard(header["rank"])
        return header["rank"], Exited(
            code=status if status >= 0 else None,
            signal=-status if status < 0 else None,
            at=header["at"],
            peak_resident=header["peak"],
        )
