"""How a bridge reaches machines: the seam between the relay and a cluster's own library."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from notebook_accel.launch.cluster.protocol import Frame
from notebook_accel.launch.engines.contract import Machine, Machines


class Node(Protocol):
    """One machine on which an agent runs."""

    host: str
    address: str
    offset: float
    """Seconds by which its clock is ahead of this machine's."""

    def send(self, frames: Sequence[Frame]) -> None:
        """Sends frames, which arrive in their order. Does not wait. A machine that is lost hears nothing."""

    def listen(self, on_frames: Callable[[Sequence[Frame]], object], on_lost: Callable[[str], object]) -> None:
        """Has `hear` called with what comes, at least every few seconds, and `lose` once with why nothing more does.

        Both are called on a thread of the transport's.
        """


class Transport(Protocol):
    """A cluster. All methods are called on one thread, which may wait."""

    def connect(self, patience: float) -> None:
        """Joins the cluster, in so many seconds where it may be stuck.

        Raises:
            ClusterError: It can't be reached, or is not to be trusted.
        """

    def survey(self) -> list[Machine]:
        """The machines that are there."""

    def start(self, machines: Machines, environ: Mapping[str, str]) -> tuple[Any, list[Node]]:
        """Starts agents; returns what `stop` takes, and the machines in the order of their addresses.

        Raises:
            ClusterError: There are too few machines, or they differ from this one.
        """

    def share(self, data: bytes) -> Any:
        """A blob that several machines get, in the form in which it travels best."""

    def stop(self, started: Any) -> None:
        """Ends the agents that one `start` has started."""


class ClusterError(Exception):
    """Something that the user can see to; the text says how.

    Args:
        text: What it is.
        again: Another process, beside the same cluster, may succeed.
    """

    def __init__(self, text: str, *, again: bool = False) -> None:
        super().__init__(text)
        self.again = again
