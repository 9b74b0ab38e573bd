"""Starts a group's ranks on nodes once the nodes have the notebook's folders and a rendezvous is open."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from notebook_accel.launch.cluster import shared_folders
from notebook_accel.launch.cluster.bridge.node import Node
from notebook_accel.launch.cluster.bridge.node_pool import NodePool, Rendezvous


class GroupStart:
    """The steps that start ranks on nodes.

    Args:
        number: The number of the group.
        spec: The kernel's parameters of the whole group.
        pool: The nodes.
    """

    def __init__(self, number: int, spec: Mapping[str, Any], pool: NodePool) -> None:
        self._number = number
        self._spec = spec
        self._node_pool = pool
        each = -(-spec["size"] // len(pool.nodes))
        parts = [range(spec["size"])[at : at + each] for at in range(0, spec["size"], each)]
        self.members: dict[Node, range] = dict(zip(pool.nodes, parts, strict=False))
        """The ranks on each node that is used."""
        self.done = False
        self._compared: dict[str, str] = {}
        """The folders that nodes are asked to compare, each with the name of its marker file."""
        self._unanswered: set[Node] = set()
        """Nodes that have not yet answered which of these folders they share."""
        self._markers = contextlib.ExitStack()

    def compare(self) -> None:
        """Asks each node which of the notebook's folders it shares, unless that is known."""
        unknown = {node: node.sent_folders.unknown(self._spec["folders"]) for node in self.members}
        self._compared = self._markers.enter_context(shared_folders.marked(sorted({*chain(*unknown.values())})))
        self._unanswered = {node for node, names in unknown.items() if names}
        for node in self._unanswered:
            asked = {name: self._compared[name] for name in unknown[node]}
            node.send(({"op": "compare", "group": self._number, "folders": asked}, ()))

    def on_compared(self, node: Node, lacking: Sequence[str]) -> None:
        """Handles a node's answer."""
        node.sent_folders.add_answer(node.sent_folders.unknown(list(self._compared)), lacking)
        self._unanswered.discard(node)

    def proceed(self) -> None:
        """Starts the ranks if everything is ready; `done` tells whether they have been started.

        Raises:
            ClusterError: The folders can't be sent.
        """
        if self._unanswered:
            return
        self._markers.close()
        own = self._spec["folders"]
        lacking = {name for node in self.members for name in node.sent_folders.lacking(own)}
        scans = {name: shared_folders.scan(name) for name in sorted(lacking)}
        rendezvous = self._node_pool.take_rendezvous()
        if rendezvous is None:
            return
        for node in self.members:
            for frame in node.sent_folders.updates(own, scans):
                node.send(frame)
            node.send((self._header(node, rendezvous), ()))
        self.done = True

    def close(self) -> None:
        """Removes the marker files."""
        self._markers.close()

    def _header(self, node: Node, rendezvous: Rendezvous) -> dict[str, Any]:
        """Makes the `start` frame for a node."""
        members = self.members[node]
        return {
            "op": "start",
            "group": self._number,
            "members": list(members),
            "environments": [self._spec["environments"][number] for number in members],
            "first": node is self._node_pool.nodes[0],
            "label": node.label,
            "clock": [node.clock.ahead, node.clock.error],
            **vars(rendezvous),
            **{name: self._spec[name] for name in ("environment", "heartbeat", "pace")},
        }
