"""The contract of engines: `Engine` starts ranks, and `Ranks` is a started group of them.

A new engine is a file in this folder that implements both protocols, and a row in the table `ENGINES` of the package.
`tests/launch/engines/test_conformance.py` runs against every engine of the table.
"""

from __future__ import annotations

import socket
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from notebook_accel.errors import LaunchError
from notebook_accel.events import Event
from notebook_accel.launch.system.network import ReservedPorts
from notebook_accel.launch.wire import constants
from notebook_accel.launch.wire.event_loop import EventLoop
from notebook_accel.launch.wire.payload import Payload
from notebook_accel.launch.wire.stream import Channel


@dataclass(frozen=True, kw_only=True)
class Rendezvous:
    """Where the ranks join their process group: a TCP store that listens before any rank starts."""

    host: str
    port: int
    listener: socket.socket | None
    """The listening socket that the store takes over; `None` on every node but the first."""
    node_rank: int = 0
    num_nodes: int = 1
    run_id: str = "none"
    attempt: int = 0
    join_timeout: float = 300.0
    """Seconds to wait for the other nodes."""
    opened_by_engine: bool = False
    """The engine opens the store on one of a cluster's nodes; host and port are not known yet."""
    ports: ReservedPorts = field(default_factory=ReservedPorts, compare=False)
    """Ports for frameworks with a rendezvous of their own, reserved until the ranks have exited."""


@dataclass(frozen=True)
class NodeInfo:
    """A node of a cluster, and its resources."""

    host: str
    address: str
    cpus: int
    gpus: int


@dataclass(frozen=True)
class NodeRequest:
    """The nodes that a group needs. Its ranks are spread over them in order, equally many on each."""

    count: int
    cpus: int
    """CPUs that the ranks of one node need."""
    gpus: int = 0
    """GPUs that the ranks of one node need."""
    excluded: tuple[str, ...] = ()
    """Hosts that must not be used, since they were lost."""

    def fits(self, node: NodeInfo) -> bool:
        """Whether a node may be used, and has the resources."""
        return node.cpus >= self.cpus and node.gpus >= self.gpus and node.host not in self.excluded

    def __str__(self) -> str:
        """The resources of each node, as messages name them."""
        count, kind = (self.gpus, "GPU") if self.gpus else (self.cpus, "CPU")
        return f"{count} {kind}{'s' if count > 1 else ''}"


@dataclass(frozen=True, kw_only=True)
class GroupSpec:
    """The ranks to start."""

    environments: Sequence[Mapping[str, str]]
    """The whole environment of each rank."""
    rendezvous: Rendezvous
    heartbeat: float
    """Seconds between two heartbeats of a rank."""
    node_request: NodeRequest | None = None
    """The nodes of a cluster to start on; `None` for this node."""
    pace: float | None = None
    """Seconds between two progress reports of a rank; by default, longer the more ranks there are."""

    @property
    def size(self) -> int:
        return len(self.environments)

    @property
    def report_interval(self) -> float:
        """Seconds between two progress reports of a rank."""
        return constants.report_interval(self.size) if self.pace is None else self.pace


class Listener(Protocol):
    """What a group of ranks reports to, on the thread that runs the event loop."""

    def on_event(self, rank: int, event: Event) -> None:
        """Handles an event of a rank."""

    def on_failure(self, error: LaunchError) -> None:
        """Handles that the ranks could not be started, or that what starts them has ended. No event follows."""


class Ranks(Protocol):
    """The started ranks of one group, numbered from 0 on this node.

    Their events arrive while the event loop runs, those of each rank in order: what it wrote comes as `Written`, before
    its next answer, display or request for input. The last event of each rank is `Exited`; a rank that exits by itself
    may announce that, so there may be two.
    """

    def call(self, ranks: Collection[int], payload: Payload) -> None:
        """Sends a call to ranks."""

    def send(self, ranks: Collection[int], event: Event) -> None:
        """Sends an event of `events/requests.py` to ranks. One that has exited is left out."""

    def finish(self, ranks: Collection[int]) -> None:
        """Tells ranks that no further call follows, so that they exit after their last."""

    def signal(self, rank: int, signum: int) -> None:
        """Sends a signal to a rank that has not exited; SIGKILL also ends the processes that the rank has started."""

    def dump_stacks(self, ranks: Collection[int], number: int) -> None:
        """Has ranks that don't reply to `StacksRequested` write their stacks by a signal, which needs no GIL.

        Args:
            ranks: The ranks. One that isn't a process of its own can't do that.
            number: Of the request. The event `Stacks` that follows carries it.
        """

    def pause(self, rank: int) -> None:
        """Holds back a rank's events, except its exit, so that a rank that writes much has to wait."""

    def resume(self, rank: int) -> None:
        """Undoes `pause`."""

    def close_store(self) -> None:
        """Closes the store, so that ranks that wait there for one that has exited get an error. Only while stopping."""

    def expect_ends(self) -> None:
        """Lets ranks that have all returned exit by themselves, even after `close`, which kills the others."""

    def close(self) -> None:
        """Kills the remaining ranks and frees all resources. No event follows."""


class Engine(Protocol):
    """Starts ranks."""

    @property
    def name(self) -> str:
        """Its name in the table of engines."""

    @property
    def isolated(self) -> bool:
        """Whether each rank is a process, which can be killed, and has its own environment and output."""

    @property
    def max_ranks(self) -> int | None:
        """The largest size of a group; `None` if there is no limit."""

    def warm(self) -> None:
        """Starts to prepare for a first group, without waiting."""

    def nodes(self, least: int) -> list[NodeInfo] | None:
        """The nodes that it can start ranks on; `None` if it starts them on this one only.

        Args:
            least: The number of nodes needed. If there were fewer a moment ago, it looks again.

        Raises:
            LaunchError: The nodes can't be listed.
        """

    def preload(self, modules: Sequence[str]) -> None:
        """Starts to import modules of installed packages for later ranks to inherit, without waiting."""

    def is_importing(self, modules: Collection[str]) -> bool:
        """Whether some of the modules are being imported, so that ranks which start later need not do it themselves."""

    def hand_over(self, successor: int, environment: Mapping[str, str]) -> Channel | None:
        """Prepares to let another process start ranks as fast as this one does.

        Args:
            successor: The other process's ID. The resources that are handed over end with it.
            environment: The environment of its ranks.

        Returns:
            The argument for its `take_over`, for the caller to send and close; `None` if there is nothing to hand over.
        """

    def take_over(self, control: Channel, environment: Mapping[str, str]) -> None:
        """Takes over the value that `hand_over` returned in another process. This process has started nothing yet."""

    def start(self, spec: GroupSpec, loop: EventLoop, listener: Listener) -> Ranks:
        """Starts ranks, without waiting until they are ready.

        Args:
            spec: The ranks.
            loop: Runs on the thread that uses the ranks.
            listener: Is called by the loop.

        Raises:
            LaunchError: They cannot be started.
        """

    def close(self) -> None:
        """Frees all resources. The engine can still be used, since the next start prepares again."""


def not_enough_nodes(wanted: NodeRequest, found: Sequence[NodeInfo]) -> str:
    """The message of an error: the cluster lacks the requested nodes."""
    there = "; ".join(f"{each.host} ({each.address}): {each.cpus} CPUs, {each.gpus} GPUs" for each in found)
    return (
        f"asked for {wanted.count} machines with {wanted} each, found {len(found)}: {there or 'none'}. Pass a smaller "
        "num_processes or num_nodes, or add machines."
    )
