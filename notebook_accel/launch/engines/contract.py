"""The contract between a launch and an engine."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from notebook_accel.events import Exited
from notebook_accel.launch.wire.payload import Payload
from notebook_accel.launch.wire.stream import Channel


class Ports:
    """Ports of the loopback interface that are held for servers which ranks may start, from `take` to `close`.

    A port is shared with a server that asks for that (SO_REUSEPORT), as gRPC's do: it alone listens. Nobody else can
    bind it in between; without asking the system refuses, and so it does to another user.
    """

    def __init__(self) -> None:
        self._holders: list[socket.socket] = []

    def take(self) -> int:
        """A free port, held from now on."""
        holder = socket.socket(socket.AF_INET)
        self._holders.append(holder)
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.bind(("127.0.0.1", 0))
        return int(holder.getsockname()[1])

    def close(self) -> None:
        """Lets go of all."""
        for holder in self._holders:
            holder.close()
        self._holders.clear()


@dataclass(frozen=True, kw_only=True)
class Meeting:
    """Where the ranks' process group meets: a store that runs before any rank does."""

    host: str
    port: int
    listener: socket.socket | None
    """The listening socket that the store takes over; `None` on every machine but the first."""
    node_rank: int = 0
    num_nodes: int = 1
    run_id: str = "none"
    attempt: int = 0
    join_timeout: float = 300.0
    """Seconds to wait for the other machines."""
    is_arranged: bool = False
    """The engine sees to it, on machines of its own; host and port are not known yet."""
    ports: Ports = field(default_factory=Ports, compare=False)
    """What frameworks with a rendezvous of their own use; held until the ranks have ended."""


@dataclass(frozen=True)
class Machine:
    """A machine of a cluster, and what it has."""

    host: str
    address: str
    cpus: int
    gpus: int


@dataclass(frozen=True)
class Machines:
    """Machines of a cluster, over which the ranks of a group are spread: equally many on each, in their order."""

    count: int
    cpus: int
    """CPUs that the ranks of one machine need."""
    gpus: int = 0
    """GPUs that they need."""

    def __str__(self) -> str:
        """What each has to have."""
        count, kind = (self.gpus, "GPU") if self.gpus else (self.cpus, "CPU")
        return f"{count} {kind}{'s' if count > 1 else ''}"


@dataclass(frozen=True, kw_only=True)
class GroupSpec:
    """The ranks to start."""

    environments: Sequence[Mapping[str, str]]
    """The whole environment of each rank."""
    meeting: Meeting
    heartbeat: float
    """Seconds between two heartbeats of a rank."""
    machines: Machines | None = None
    """Where in a cluster; `None` for this machine."""
    pace: float | None = None
    """Seconds between two times that a rank tells of its progress; by default what suits so many ranks."""

    @property
    def size(self) -> int:
        return len(self.environments)


class Ranks(Protocol):
    """The started ranks of one group. Ranks are numbered from 0 on this machine."""

    @property
    def channels(self) -> Sequence[Channel]:
        """On each, a rank says `events`; finishing one tells its rank that no further call comes."""

    @property
    def outputs(self) -> Sequence[tuple[int, int]]:
        """Descriptors to read each rank's standard output and error from; empty if they go where the kernel's go."""

    def fileno(self) -> int:
        """Readable when `changes` has something."""

    def changes(self) -> list[tuple[int, Exited]]:
        """The ranks that have ended since the last call. Does not block.

        Raises:
            LaunchError: The ranks could not be started.
        """

    def call(self, rank: int, payload: Payload) -> None:
        """Hands a call to a rank."""

    def signal(self, rank: int, signum: int) -> None:
        """Sends a signal to a rank that has not ended; a kill also ends all that the rank has started."""

    def close_store(self) -> None:
        """Closes the store: whoever waits there for a rank that has ended gets an error. Only ranks that are to end."""

    def expect_ends(self) -> None:
        """Leaves ranks that have all said that they end to do so by themselves, after `close` if need be."""

    def close(self) -> None:
        """Ends whatever is left at once, and frees everything."""


class Engine(Protocol):
    """Starts ranks."""

    @property
    def name(self) -> str:
        """Its name in the table of engines."""

    @property
    def isolated(self) -> bool:
        """Each rank is a process of its own: it can be killed, and has its own environment and output."""

    @property
    def max_ranks(self) -> int | None:
        """The most ranks of a group; `None` if there is no limit."""

    def warm(self) -> None:
        """Begins to prepare for a first start, without waiting."""

    def preload(self, modules: Sequence[str]) -> None:
        """Begins to import installed modules where later ranks will find them, without waiting."""

    def hand_over(self, successor: int, environment: Mapping[str, str]) -> Channel | None:
        """Gets ready for another process to start ranks as fast as this one does.

        Args:
            successor: That process, with which it all ends.
            environment: What its ranks will have.

        Returns:
            What it is to `inherit`, to be closed here; `None` where there is nothing that it could.
        """

    def take_over(self, control: Channel, environment: Mapping[str, str]) -> None:
        """Takes over, in a process that has started nothing yet, what another has bequeathed."""

    def start(self, spec: GroupSpec) -> Ranks:
        """Starts ranks; does not wait until they are there.

        Raises:
            LaunchError: They cannot be started.
        """

    def close(self) -> None:
        """Frees everything; the next start begins anew."""


def too_few(wanted: Machines, found: Sequence[Machine]) -> str:
    """That the cluster has not what was asked for."""
    there = "; ".join(f"{each.host} ({each.address}): {each.cpus} CPUs, {each.gpus} GPUs" for each in found)
    return (
        f"asked for {wanted.count} machines with {wanted} each, found {len(found)}: {there or 'none'}. Pass a smaller "
        "num_processes or num_nodes, or add machines."
    )
