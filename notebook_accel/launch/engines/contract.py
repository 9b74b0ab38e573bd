"""The contract of engines: `Engine` starts ranks, which are a `Ranks` (`ranks.py`).

A new engine is a file in this folder with a subclass of both, and a row in the table `ENGINES` of the package.
`tests/launch/engines/test_conformance.py` runs against every engine of the table.
"""

from __future__ import annotations

import socket
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from notebook_accel.launch.system.network import ReservedPorts
from notebook_accel.launch.wire import constants
from notebook_accel.launch.wire.constants import Streams
from notebook_accel.launch.wire.event_loop import EventLoop
from notebook_accel.launch.wire.stream import Channel
from notebook_accel.rank_spans import counted

if TYPE_CHECKING:
    from notebook_accel.launch.engines.ranks import Ranks


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
    """The nodes that ranks need. The ranks are spread over them in order, equally many on each."""

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
        return counted(count, kind)


@dataclass(frozen=True, kw_only=True)
class RanksSpec:
    """The ranks to start."""

    environments: Sequence[Mapping[str, str]]
    """The whole environment of each rank."""
    rendezvous: Rendezvous
    heartbeat: float
    """Seconds between two heartbeats of a rank."""
    node_request: NodeRequest | None = None
    """The nodes of a cluster to start on; `None` for this node."""
    streams: Streams = Streams.CALLS
    pace: float | None = None
    """Seconds between two progress reports of a rank; by default, longer the more ranks there are."""

    @property
    def size(self) -> int:
        return len(self.environments)

    @property
    def report_interval(self) -> float:
        """Seconds between two progress reports of a rank."""
        return constants.report_interval(self.size) if self.pace is None else self.pace


class Engine(ABC):
    """Starts ranks. What an engine has no use for, it leaves as it is here."""

    name: str
    """Its name in the table of engines."""
    isolated = True
    """Whether each rank is a process, which can be killed, and has its own environment and output."""
    max_ranks: int | None = None
    """The largest number of ranks of one start; `None` if there is no limit."""

    def warm(self, *, script: bool = False) -> None:  # noqa: B027  # not every engine prepares or holds anything
        """Starts to prepare for a first launch, without waiting.

        Args:
            script: Whether its ranks run a script.
        """

    def nodes(self, least: int) -> list[NodeInfo] | None:
        """The nodes that it can start ranks on; `None` if it starts them on this one only.

        Args:
            least: The number of nodes needed. If there were fewer a moment ago, it looks again.

        Raises:
            LaunchError: The nodes can't be listed.
        """
        return None

    def preload(self, modules: Sequence[str]) -> None:  # noqa: B027  # not every engine prepares or holds anything
        """Starts to import modules of installed packages for later ranks to inherit, without waiting."""

    def share(self, *, at_exit: bool = False) -> None:  # noqa: B027  # not every engine shares anything
        """Starts what lets later processes launch faster, if a launch has lacked it. Does not wait.

        Args:
            at_exit: Whether this process ends now.
        """

    def roots(self) -> list[int]:
        """The processes that its ranks descend from, whether or not they are children of this one."""
        return []

    def is_importing(self, modules: Collection[str]) -> bool:
        """Whether some of the modules are being imported, so that ranks which start later need not do it themselves."""
        return False

    def hand_over(self, successor: int, environment: Mapping[str, str]) -> Channel | None:
        """Prepares to let another process start ranks as fast as this one does.

        Args:
            successor: The other process's ID. The resources that are handed over end with it.
            environment: The environment of its ranks.

        Returns:
            The argument for its `take_over`, for the caller to send and close; `None` if there is nothing to hand over.
        """
        return None

    def take_over(self, control: Channel, environment: Mapping[str, str]) -> None:
        """Takes over the value that `hand_over` returned in another process. This process has started nothing yet."""
        raise NotImplementedError

    def start(self, spec: RanksSpec, loop: EventLoop) -> Ranks:
        """Starts ranks, without waiting until they are ready.

        Args:
            spec: The ranks.
            loop: Runs on the thread that uses the ranks.

        Raises:
            LaunchError: They cannot be started.
        """
        try:
            return self._start(spec, loop)
        except BaseException:
            spec.rendezvous.ports.close()
            raise

    @abstractmethod
    def _start(self, spec: RanksSpec, loop: EventLoop) -> Ranks: ...

    def close(self) -> None:  # noqa: B027  # not every engine prepares or holds anything
        """Frees all resources. The engine can still be used, since the next start prepares again."""


def not_enough_nodes(wanted: NodeRequest, found: Sequence[NodeInfo]) -> str:
    """The message of an error: the cluster lacks the requested nodes."""
    there = "; ".join(f"{each.host} ({each.address}): {each.cpus} CPUs, {each.gpus} GPUs" for each in found)
    return (
        f"asked for {wanted.count} machines with {wanted} each, found {len(found)}: {there or 'none'}. Pass a smaller "
        "num_processes or num_nodes, or add machines."
    )
