"""The nodes that a bridge holds for groups of one shape: started once, kept warm, and released when idle."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from notebook_accel.launch.cluster.bridge.link import Link
from notebook_accel.launch.cluster.protocol import Frame
from notebook_accel.launch.cluster.transport import Node

IDLE = 300.0
"""Seconds without a group after which nodes are released."""


class Group(Protocol):
    """A group of ranks on these nodes."""

    number: int

    def on_frame(self, link: Link, frame: Frame) -> None: ...

    def on_loss(self, link: Link, why: str) -> None: ...

    def on_rendezvous(self) -> None: ...


@dataclass(frozen=True)
class Rendezvous:
    """The address of a group's store."""

    host: str
    port: int


class Fleet:
    """Nodes with agents.

    Args:
        started: The transport's handle for stopping the nodes.
        nodes: The nodes.
        post: Calls a function on the bridge's thread.
    """

    def __init__(self, started: Any, nodes: Sequence[Node], post: Callable[[Callable[[], object]], object]) -> None:
        self.started = started
        self.groups: dict[int, Group] = {}
        names = Counter(node.host for node in nodes)
        labels = [node.host if names[node.host] == 1 else f"{node.host}#{index}" for index, node in enumerate(nodes)]
        self.links = [
            Link(node, label, post, self._on_frame, self._on_loss) for node, label in zip(nodes, labels, strict=True)
        ]
        self._used = time.monotonic()
        self._rendezvous: deque[Rendezvous] = deque()
        """The rendezvous on the first node, opened in advance."""
        self._offer()

    @property
    def is_whole(self) -> bool:
        """Whether no node is lost."""
        return not any(link.lost for link in self.links)

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
        for link in self.links:
            link.send(frame)

    def check(self, now: float) -> None:
        """Sends queued frames, and detects silent nodes."""
        for link in self.links:
            link.check(now)
            link.flush()

    def _offer(self) -> None:
        self.links[0].send(({"op": "offer"}, ()))

    def _on_frame(self, link: Link, frame: Frame) -> None:
        header = frame[0]
        if header["op"] == "offered":
            self._rendezvous.append(Rendezvous(header["host"], header["port"]))
            for group in list(self.groups.values()):
                group.on_rendezvous()
        elif header["group"] in self.groups:
            self.groups[header["group"]].on_frame(link, frame)

    def _on_loss(self, link: Link, why: str) -> None:
        for group in list(self.groups.values()):
            group.on_loss(link, why)
