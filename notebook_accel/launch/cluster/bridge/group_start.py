"""What it takes to start a group's ranks on machines: the notebook's folders there, and a place to meet."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from notebook_accel.launch.cluster import shared_folders
from notebook_accel.launch.cluster.bridge.fleet import Fleet, Place
from notebook_accel.launch.cluster.bridge.link import Link


class Start:
    """From the machines to the ranks' start.

    Args:
        number: The group's.
        order: What the kernel has said of the whole group.
        environments: Of its ranks, by their numbers.
        fleet: The machines.
    """

    def __init__(
        self, number: int, order: Mapping[str, Any], environments: Mapping[int, Mapping[str, str]], fleet: Fleet
    ) -> None:
        self._number = number
        self._order = order
        self._environments = environments
        self._fleet = fleet
        numbers = list(environments)
        each = -(-len(numbers) // len(fleet.links))
        parts = [numbers[at : at + each] for at in range(0, len(numbers), each)]
        self.members: dict[Link, list[int]] = dict(zip(fleet.links, parts, strict=False))
        """The ranks on each machine that is needed."""
        self.done = False
        self._asked: dict[str, str] = {}
        """Folders of which it is asked whether machines share them, each with the name of a file in it."""
        self._unheard: set[Link] = set()
        """Machines that have not told yet which of these they share."""
        self._markers = contextlib.ExitStack()

    def compare(self) -> None:
        """Asks machines, as far as that is not known, which of the notebook's folders they share."""
        unknown = {link: link.shipping.unknown(self._order["folders"]) for link in self.members}
        self._asked = self._markers.enter_context(shared_folders.marked(sorted({*chain(*unknown.values())})))
        self._unheard = {link for link, names in unknown.items() if names}
        for link in self._unheard:
            asked = {name: self._asked[name] for name in unknown[link]}
            link.tell(({"op": "compare", "group": self._number, "folders": asked}, ()))

    def on_compared(self, link: Link, lacking: Sequence[str]) -> None:
        """A machine has told."""
        link.shipping.learn(link.shipping.unknown(list(self._asked)), lacking)
        self._unheard.discard(link)

    def proceed(self) -> None:
        """Starts the ranks if all is there that it takes; `done` says whether.

        Raises:
            ClusterError: The folders can't be sent.
        """
        if self._unheard:
            return
        self._markers.close()
        own = self._order["folders"]
        lacking = {name for link in self.members for name in link.shipping.lacking(own)}
        scans = {name: shared_folders.scan(name) for name in sorted(lacking)}
        place = self._fleet.take_place()
        if place is None:
            return
        for link in self.members:
            for frame in link.shipping.news(own, scans):
                link.tell(frame)
            link.tell((self._header(link, place), ()))
        self.done = True

    def close(self) -> None:
        """Takes away what it has put into the folders."""
        self._markers.close()

    def _header(self, link: Link, place: Place) -> dict[str, Any]:
        """What a machine is told."""
        members = self.members[link]
        return {
            "op": "start",
            "group": self._number,
            "members": members,
            "environments": [self._environments[number] for number in members],
            "first": link is self._fleet.links[0],
            "label": link.label,
            "ahead": link.offset,
            **vars(place),
            **{name: self._order[name] for name in ("heartbeat", "pace")},
        }
