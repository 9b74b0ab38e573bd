"""The TPU engine: a fork server starts one supervisor, which starts all ranks of a group."""

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
from notebook_accel.launch.engines.server_ranks import ServerRanks, output_pipe, send_call
from notebook_accel.launch.tpu.environment import PER_RANK
from notebook_accel.launch.wire.payload import Payload
from notebook_accel.launch.wire.stream import Channel, Message, pair


class XlaEngine(ServerEngine):
    """Starts ranks by a server that has imported torch_xla."""

    def __init__(self) -> None:
        super().__init__("xla")

    def start(self, spec: GroupSpec) -> XlaRanks:  # type: ignore[override]  # another class of ranks
        return XlaRanks(self, spec)

    def start_supervisor(self, spec: GroupSpec) -> ServerRanks:
        """Starts a group's supervisor, which the server treats as the only rank of the group."""
        return ServerRanks(*self._open_group(spec), replace(spec, environments=spec.environments[:1]))


class XlaRanks:
    """The ranks of one group. Each has its channel and exit status; all end with their supervisor."""

    def __init__(self, engine: XlaEngine, spec: GroupSpec) -> None:
        self._supervisor = engine.start_supervisor(spec)
        self._control = self._supervisor.channels[0]
        self._running = set(range(spec.size))
        self.channels: list[Channel] = []
        self.outputs: list[tuple[int, int]] = []
        self._poll = select.epoll()
        self._poll.register(self._supervisor, select.EPOLLIN)
        self._poll.register(self._control, select.EPOLLIN)
        try:
            for rank in range(spec.size):
                self._add_rank(rank, spec)
        except OSError:  # it has died already: `new_exits` reports it
            pass
        except BaseException:
            self.close()
            raise

    def fileno(self) -> int:
        return self._poll.fileno()

    def new_exits(self) -> list[tuple[int, Exited]]:
        ends = self._supervisor.new_exits() if self._running else []
        found = [self._to_exit(message) for message in self._receive()]
        for _, exited in ends:  # the supervisor can no longer report the exits of its ranks
            found += [(rank, exited) for rank in sorted(self._running)]
            self._running.clear()
        return found

    def call(self, rank: int, payload: Payload) -> None:
        send_call(self.channels[rank], payload)

    def signal(self, rank: int, signum: int) -> None:
        """Sends a signal. SIGKILL ends all ranks: the others would wait for the killed one in a collective."""
        if rank not in self._running:
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
        self._poll.close()
        self._supervisor.close()
        for channel in self.channels:
            channel.close()
        for pipes in self.outputs[1:]:
            for fd in pipes:
                os.close(fd)
        self.outputs = []

    def _add_rank(self, rank: int, spec: GroupSpec) -> None:
        """Gives a rank its channel and its pipes; rank 0 shares the supervisor's pipes."""
        own_end, rank_end = pair()
        self.channels.append(Channel(own_end))
        ends: list[int] = []
        if rank:
            out, err = output_pipe(), output_pipe()
            self.outputs.append((out[0], err[0]))
            ends = [out[1], err[1]]
        else:
            self.outputs.append(self._supervisor.outputs[0])
        own = {name: spec.environments[rank][name] for name in PER_RANK if name in spec.environments[rank]}
        try:
            self._control.send({"rank": rank, "size": spec.size, "env": own}, fds=[rank_end.fileno(), *ends])
        finally:
            rank_end.close()
            for fd in ends:
                os.close(fd)

    def _receive(self) -> list[Message]:
        found: list[Message] = []
        while self._control.is_open and self._control.has_data():
            found += self._control.receive(wait=False) or ()
        if not self._control.is_open:
            with contextlib.suppress(OSError, ValueError):
                self._poll.unregister(self._control)
        return found

    def _to_exit(self, message: Message) -> tuple[int, Exited]:
        header = message.header
        if "error" in header:
            raise LaunchError(header["error"])
        status = header["status"]
        self._running.discard(header["rank"])
        return header["rank"], Exited(
            code=status if status >= 0 else None,
            signal=-status if status < 0 else None,
            at=header["at"],
            peak_resident=header["peak"],
        )
