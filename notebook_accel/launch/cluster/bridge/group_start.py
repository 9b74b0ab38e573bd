"""Starts a group's ranks on nodes once the nodes have the notebook's folders and a rendezvous is open."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from notebook_accel.launch.cluster import shared_folders
from notebook_accel.launch.cluster.bridge.link import Link
from notebook_accel.launch.cluster.bridge.node_pool import Fleet, Rendezvous


class GroupStart:
    """The steps that start ranks on nodes.

    Args:
        number: The number of the group.
        order: The kernel's parameters of the whole group.
        environments: The environments of its ranks, by rank.
        fleet: The machines.
    """

    def __init__(
        self, number: int, spec: Mapping[str, Any], environments: Mapping[int, Mapping[str, str]], fleet: Fleet
    ) -> None:
        self._number = number
        self._spec = spec
        self._environments = environments
        self._fleet = fleet
        numbers = list(environments)
        each = -(-len(numbers) // len(fleet.links))
        parts = [numbers[at : at + each] for at in range(0, len(numbers), each)]
        self.members: dict[Link, list[int]] = dict(zip(fleet.links, parts, strict=False))
        """The ranks on each node that is used."""
        self.done = False
        self._compared: dict[str, str] = {}
        """The folders that nodes are asked to compare, each with the name of its marker file."""
        self._unanswered: set[Link] = set()
        """Nodes that have not yet answered which of these folders they share."""
        self._markers = contextlib.ExitStack()

    def compare(self) -> None:
        """Asks each node which of the notebook's folders it shares, unless that is known."""
        unknown = {link: link.sent_folders.unknown(self._spec["folders"]) for link in self.members}
        self._compared = self._markers.enter_context(shared_folders.marked(sorted({*chain(*unknown.values())})))
        self._unanswered = {link for link, names in unknown.items() if names}
        for link in self._unanswered:
            asked = {name: self._compared[name] for name in unknown[link]}
            link.send(({"op": "compare", "group": self._number, "folders": asked}, ()))

    def on_compared(self, link: Link, lacking: Sequence[str]) -> None:
        """Handles a node's answer."""
        link.sent_folders.add_answer(link.sent_folders.unknown(list(self._compared)), lacking)
        self._unanswered.discard(link)

    def proceed(self) -> None:
        """Starts the ranks if everything is ready; `done` tells whether they have been started.

        Raises:
            ClusterError: The folders can't be sent.
        """
        if self._unanswered:
            return
        self._markers.close()
        own = self._spec["folders"]
        lacking = {name for link in self.members for name in link.sent_folders.lacking(own)}
        scans = {name: shared_folders.scan(name) for name in sorted(lacking)}
        rendezvous = self._fleet.take_rendezvous()
        if rendezvous is None:
            return
        for link in self.members:
            for frame in link.sent_folders.updates(own, scans):
                link.send(frame)
            link.send((self._header(link, rendezvous), ()))
        self.done = True

    def close(self) -> None:
        """Removes the marker files."""
        self._markers.close()

    def _header(self, link: Link, rendezvous: Rendezvous) -> dict[str, Any]:
        """Makes the `start` frame for a node."""
        members = self.members[link]
        return {
            "op": "start",
            "group": self._number,
            "members": members,
            "environments": [self._environments[number] for number in members],
            "first": link is self._fleet.links[0],
            "label": link.label,
            "ahead": link.offset,
            **vars(rendezvous),
            **{name: self._spec[name] for name in ("heartbeat", "pace")},
        }
