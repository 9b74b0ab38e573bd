"""The contract of a transport, through which a bridge reaches nodes with a cluster's own library."""

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
    """How many seconds its clock is ahead of the bridge's."""

    def send(self, frames: Sequence[Frame]) -> None:
        """Sends frames, in order, without waiting. Frames to a lost node are dropped."""

    def listen(self, on_frames: Callable[[Sequence[Frame]], object], on_lost: Callable[[str], object]) -> None:
        """Starts to call `hear` with arriving frames, at least every few seconds, and `lose` once, with the reason.

        Both are called on a thread of the transport.
        """


class Transport(Protocol):
    """A cluster. All methods are called on one thread, which may block."""

    def connect(self, patience: float) -> None:
        """Joins the cluster; gives up after this many seconds if the connection may be stuck.

        Raises:
            ClusterError: The cluster can't be reached, or is not trusted.
        """

    def survey(self) -> list[NodeInfo]:
        """The available nodes."""

    def start(self, machines: NodeRequest, environ: Mapping[str, str]) -> tuple[Any, list[Node]]:
        """Starts agents; returns a handle for `stop`, and the nodes in the order of their addresses.

        Raises:
            ClusterError: There are too few nodes, or their versions differ from this one's.
        """

    def share(self, data: bytes) -> Any:
        """Prepares a blob for several nodes, in the form that is most efficient to send."""

    def stop(self, started: Any) -> None:
        """Ends the agents of one `start`."""


class ClusterError(Exception):
    """An error that the user can fix; the text says how.

    Args:
        text: The message.
        again: Whether another process, on the same cluster, may succeed.
    """

    def __init__(self, text: str, *, again: bool = False) -> None:
        super().__init__(text)
        self.again = again
