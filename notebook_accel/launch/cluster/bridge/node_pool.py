"""The nodes that a bridge holds for groups of one shape: started once, kept warm, and released when idle."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from notebook_accel.launch.cluster.agent_launcher import Agents
from notebook_accel.launch.cluster.bridge.agents import ConnectedAgent
from notebook_accel.launch.cluster.bridge.node import Node
from notebook_accel.launch.cluster.protocol import Frame
from notebook_accel.launch.wire.event_loop import EventLoop

IDLE = 300.0
"""Seconds without a group after which nodes are released."""


class Group(Protocol):
    """A group of ranks on these nodes."""

    number: int

    def on_frame(self, node: Node, frame: Frame) -> None: ...

    def on_loss(self, node: Node, why: str) -> None: ...

    def on_leaving(self, node: Node) -> None: ...

    def on_rendezvous(self) -> None: ...


@dataclass(frozen=True)
class Rendezvous:
    """The address of a group's store."""

    host: str
    port: int


class NodePool:
    """Nodes with agents.

    Args:
        agents: Ends the agents.
        connected: The agents, in the order of their nodes.
        loop: The event loop of the bridge's thread.
    """

    def __init__(self, agents: Agents, connected: Sequence[ConnectedAgent], loop: EventLoop) -> None:
        self.agents = agents
        self.groups: dict[int, Group] = {}
        names = Counter(agent.host for agent in connected)
        self.nodes = [
            Node(
                agent,
                agent.host if names[agent.host] == 1 else f"{agent.host}#{index}",
                loop,
                self._on_frame,
                self._on_loss,
            )
            for index, agent in enumerate(connected)
        ]
        self._used = time.monotonic()
        self._rendezvous: deque[Rendezvous] = deque()
        """The rendezvous on the first node, opened in advance."""
        self._offer()

    @property
    def is_whole(self) -> bool:
        """Whether no node is lost, or about to be."""
        return not any(node.lost or node.leaving for node in self.nodes)

    def is_idle(self, now: float) -> bool:
        """Whether no group has used the nodes for a long time."""
        if self.groups:
            self._used = now
        return now - self._used > IDLE

    def take_rendezvous(self) -> Rendezvous | None:
        """Takes an open rendezvous. Returns `None` if none is open yet; the groups' `on_rendezvous` is called later."""
        if not self._rendezvous:
            return None
        self._offer()  # for the next group
        return self._rendezvous.popleft()

    def broadcast(self, frame: Frame) -> None:
        """Sends a frame to every node."""
        for node in self.nodes:
            node.send(frame)

    def close(self) -> None:
        """Disconnects all nodes, whose agents then end."""
        for node in self.nodes:
            node.close()

    def check(self, now: float) -> None:
        """Sends queued frames, and detects silent nodes."""
        for node in self.nodes:
            node.check(now)
            node.flush()

    def _offer(self) -> None:
        self.nodes[0].send(({"op": "offer"}, ()))

    def _on_frame(self, node: Node, frame: Frame) -> None:
        header = frame[0]
        if header["op"] == "offered":
            self._rendezvous.append(Rendezvous(header["host"], header["port"]))
            for group in list(self.groups.values()):
                group.on_rendezvous()
        elif header["op"] == "leaving":
            node.leaving = True
            for group in list(self.groups.values()):
                group.on_leaving(node)
        elif header.get("group") in self.groups:
            self.groups[header["group"]].on_frame(node, frame)

    def _on_loss(self, node: Node, why: str) -> None:
        for group in list(self.groups.values()):
            group.on_loss(node, why)
