"""The contract of launchers. Each is a way to start agents on the nodes of a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from notebook_accel.launch.engines import contract
from notebook_accel.launch.engines.contract import NodeInfo, NodeRequest

Order = Mapping[str, Any]
"""What an agent reads first: see `protocol.py`. It holds a secret, so only the agent may see it."""


class Agents(Protocol):
    """The agents of one start. They connect to the bridge by themselves, and end with that connection."""

    def check(self) -> None:
        """Returns if all agents still run, as far as is known.

        Raises:
            ClusterError: One has ended, or can't be started.
        """

    def stop(self) -> None:
        """Ends agents that are not connected, and frees the nodes. The others have been disconnected before."""


class AgentLauncher(Protocol):
    """A cluster. All methods are called on one thread, which may block."""

    def connect(self, timeout: float) -> None:
        """Joins the cluster; gives up after this many seconds if the connection may be stuck.

        Raises:
            ClusterError: The cluster can't be reached, or is not trusted.
        """

    def survey(self) -> list[NodeInfo]:
        """The available nodes.

        Raises:
            ClusterError: They can't be listed.
        """

    def start(self, request: NodeRequest, nodes: Sequence[NodeInfo], order: Order) -> Agents:
        """Starts an agent on each of the requested nodes.

        Args:
            request: The nodes.
            nodes: The available nodes that have these resources; enough for the request.
            order: For the agents. A launcher may add `node`, `name` and `node_rank`.

        Raises:
            ClusterError: They can't be started.
        """


class ClusterError(Exception):
    """An error that the user can fix; the text says how.

    Args:
        text: The message.
        again: Whether another process, on the same cluster, may succeed.
    """

    def __init__(self, text: str, *, again: bool = False) -> None:
        super().__init__(text)
        self.again = again


def fitting(request: NodeRequest, nodes: Sequence[NodeInfo]) -> list[NodeInfo]:
    """The nodes that have the requested resources.

    Raises:
        ClusterError: There are too few.
    """
    found = [node for node in nodes if request.fits(node)]
    if len(found) < request.count:
        raise ClusterError(contract.not_enough_nodes(request, nodes))
    return found
