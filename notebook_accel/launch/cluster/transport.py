"""The contract of a transport: how a bridge reaches nodes through a cluster's own library."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from notebook_accel.launch.cluster.protocol import Frame
from notebook_accel.launch.engines.contract import NodeInfo, NodeRequest


class Node(Protocol):
    """A node on which an agent runs."""

    host: str
    address: str
    offset: float
    """Seconds by which its clock is ahead of the bridge's."""

    def send(self, frames: Sequence[Frame]) -> None:
        """Sends frames, in order, without waiting. Those to a node that is lost are dropped."""

    def listen(self, on_frames: Callable[[Sequence[Frame]], object], on_lost: Callable[[str], object]) -> None:
        """Has `hear` called with what comes, at least every few seconds, and `lose` once with why nothing more does.

        Both are called on a thread of the transport.
        """


class Transport(Protocol):
    """A cluster. All methods are called on one thread, which may wait."""

    def connect(self, patience: float) -> None:
        """Joins the cluster, in so many seconds where it may be stuck.

        Raises:
            ClusterError: It can't be reached, or is not to be trusted.
        """

    def survey(self) -> list[NodeInfo]:
        """The nodes that are there."""

    def start(self, machines: NodeRequest, environ: Mapping[str, str]) -> tuple[Any, list[Node]]:
        """Starts agents; returns what `stop` takes, and the nodes in the order of their addresses.

        Raises:
            ClusterError: There are too few nodes, or their versions differ from this one's.
        """

    def share(self, data: bytes) -> Any:
        """A blob for several nodes, in the form in which it travels best."""

    def stop(self, started: Any) -> None:
        """Ends the agents of one `start`."""


class ClusterError(Exception):
    """An error that the user can fix; the text says how.

    Args:
        text: What it is.
        again: Another process, beside the same cluster, may succeed.
    """

    def __init__(self, text: str, *, again: bool = False) -> None:
        super().__init__(text)
        self.again = again
