"""Starts agents on nodes, and waits until each has connected and proved that it belongs to this start."""

from __future__ import annotations

import contextlib
import ipaddress
import queue
import secrets
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from notebook_accel.errors import StreamError
from notebook_accel.launch.cluster import agent_launcher, clock_offset, connection, versions
from notebook_accel.launch.cluster.agent_launcher import AgentLauncher, Agents, ClusterError, Order
from notebook_accel.launch.cluster.clock_offset import ClockOffset
from notebook_accel.launch.cluster.connection import FrameConnection
from notebook_accel.launch.engines.contract import NodeRequest
from notebook_accel.launch.system import network

TIMEOUT = 120.0
"""How many seconds the agents have to connect once the launcher has started them."""
_CHECK_INTERVAL = 0.05
_ANY_PORT = 9


@dataclass(frozen=True)
class ConnectedAgent:
    """An agent that knows the secret of its start."""

    connection: FrameConnection
    node: str
    """Tells its node from the others."""
    node_rank: int
    host: str
    """The node's name as users know it; two nodes may have the same."""
    address: str
    versions: Mapping[str, str]
    clock: ClockOffset


def start(
    launcher: AgentLauncher, request: NodeRequest, environ: Mapping[str, str]
) -> tuple[Agents, list[ConnectedAgent]]:
    """Starts agents, and returns them in the order of their nodes.

    Args:
        launcher: Starts them.
        request: The nodes.
        environ: Environment variables of future ranks.

    Raises:
        ClusterError: There are too few nodes, an agent did not connect, or a node's versions differ from this one's.
    """
    nodes = agent_launcher.fitting(request, launcher.survey())
    with _Reception(_own_address([node.address for node in nodes])) as reception:
        agents = launcher.start(request, nodes, reception.order(environ))
        try:
            found = reception.wait_for(request.count, agents)
        except BaseException:
            reception.turn_away()
            agents.stop()
            raise
    return agents, sorted(found, key=lambda agent: (agent.node_rank, versions.order(agent.address, agent.host)))


class _Reception:
    """Listens for the agents of one start."""

    def __init__(self, host: str) -> None:
        self._listener = socket.create_server((host, 0), backlog=4096)
        self._listener.settimeout(_CHECK_INTERVAL)
        self._secret = secrets.token_bytes(32)
        self._authenticated: queue.SimpleQueue[ConnectedAgent] = queue.SimpleQueue()
        self._admitted: dict[str, ConnectedAgent] = {}
        self._closed = False

    def __enter__(self) -> _Reception:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Accepts no further connections."""
        self._closed = True
        self._listener.close()
        for late in self._waiting():
            late.connection.close()

    def order(self, environ: Mapping[str, str]) -> Order:
        """The order for the agents."""
        return {"bridge": self._listener.getsockname()[:2], "secret": self._secret.hex(), "environ": dict(environ)}

    def wait_for(self, count: int, agents: Agents) -> Sequence[ConnectedAgent]:
        """Waits until `count` nodes have connected."""
        deadline = time.monotonic() + TIMEOUT
        while len(self._admitted) < count:
            with contextlib.suppress(TimeoutError):
                caller, _ = self._listener.accept()
                # Each has its own thread, so that a stranger does not delay the others.
                threading.Thread(target=self._authenticate, args=(caller,), daemon=True).start()
            for agent in self._waiting():
                self._admit(agent)
            if len(self._admitted) < count:
                agents.check()
            if time.monotonic() > deadline:
                raise ClusterError(self._missing(count))
        return list(self._admitted.values())

    def turn_away(self) -> None:
        """Disconnects all, so that they end."""
        self.close()
        for agent in self._admitted.values():
            agent.connection.close()

    def _admit(self, agent: ConnectedAgent) -> None:
        other = self._admitted.setdefault(agent.node, agent)
        if other is not agent:
            agent.connection.close()
            raise ClusterError(
                f"{agent.host} ({agent.address}) has joined twice: two agents connected as node {agent.node!r}, the "
                f"first from {other.address}. Name every machine once, and check that nothing else starts agents."
            )
        versions.compare(agent.host, agent.address, agent.versions)

    def _waiting(self) -> Iterator[ConnectedAgent]:
        while not self._authenticated.empty():
            yield self._authenticated.get()

    def _authenticate(self, caller: socket.socket) -> None:
        """Lets an agent in that knows the secret; a stranger is ignored."""
        with contextlib.suppress(OSError, EOFError, StreamError, connection.AuthenticationError):
            link = connection.answer(caller, self._secret)
            try:
                self._authenticated.put(_connected(link, link.receive_header(), clock_offset.measure(link)))
            except BaseException:
                link.close()
                raise
            if self._closed:
                link.close()

    def _missing(self, count: int) -> str:
        joined = ", ".join(agent.host for agent in self._admitted.values()) or "none"
        host, port = self._listener.getsockname()[:2]
        return (
            f"only {len(self._admitted)} of {count} machines have connected to {host}:{port} within {TIMEOUT:g} s "
            f"({joined}): the others may be overloaded, or a firewall drops what they send. Check that they can reach "
            "this machine, and launch again."
        )


def _connected(link: FrameConnection, joined: Mapping[str, Any], clock: ClockOffset) -> ConnectedAgent:
    return ConnectedAgent(
        connection=link,
        clock=clock,
        **{name: joined[name] for name in ("node", "node_rank", "host", "address", "versions")},
    )


def _own_address(addresses: Sequence[str]) -> str:
    """This node's address on the network of the others."""
    found = []
    for address in addresses:
        with contextlib.suppress(OSError):
            found.append(network.own_address(address, _ANY_PORT))
    if not found:
        raise ClusterError(
            f"this machine cannot resolve the name of any machine of the cluster: {', '.join(addresses)}. Add them to "
            "its DNS or to /etc/hosts."
        )
    return next((own for own in found if not ipaddress.ip_address(own).is_loopback), found[0])
