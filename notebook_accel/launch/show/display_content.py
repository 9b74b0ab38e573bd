"""What ranks have displayed: the content of one output, or contents of several ranks side by side."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from notebook_accel.events import Shown
from notebook_accel.launch.show import side_by_side


@dataclass(frozen=True)
class Content:
    """What an area shows."""

    data: Mapping[str, Any]
    """By MIME type."""
    metadata: Mapping[str, Any]

    @classmethod
    def of(cls, event: Shown) -> Content:
        found = json.loads(joined(event))
        return cls(found["data"], found["metadata"])

    @property
    def digest(self) -> bytes:
        """The same for equal contents."""
        return hashlib.sha256(json.dumps([self.data, self.metadata], sort_keys=True).encode()).digest()

    def parts_of(self, ranks: Collection[int]) -> Parts:
        """What these ranks, who have all displayed it, have displayed."""
        return {tuple(sorted(ranks)): self}

    def left_to(self, ranks: Collection[int]) -> Content:
        """What of it these ranks, who are some of those who have displayed it, have displayed."""
        del ranks
        return self


Parts = Mapping[tuple[int, ...], Content]
"""What ranks have displayed differently in one place."""


@dataclass(frozen=True)
class SideBySide(Content):
    """What ranks have displayed differently in one place, side by side."""

    parts: Parts
    label: Callable[[Collection[int]], str | None]

    @classmethod
    def of_parts(cls, parts: Parts, label: Callable[[Collection[int]], str | None]) -> Content:
        """The parts in the order of the ranks, and equal ones once."""
        ranks_of: dict[int, list[int]] = {}
        contents: list[Content] = []
        for ranks, content in sorted(parts.items()):
            if content not in contents:
                contents.append(content)
            ranks_of.setdefault(contents.index(content), []).extend(ranks)
        if len(contents) == 1:
            return contents[0]
        found = {tuple(sorted(ranks_of[index])): content for index, content in enumerate(contents)}
        labeled = {label(ranks) or "": (part.data, part.metadata) for ranks, part in found.items()}
        return cls(side_by_side.compose(labeled), {}, found, label)

    def parts_of(self, ranks: Collection[int]) -> Parts:
        left = {tuple(rank for rank in part if rank in ranks): content for part, content in self.parts.items()}
        left.pop((), None)
        return left

    def left_to(self, ranks: Collection[int]) -> Content:
        return self.of_parts(self.parts_of(ranks), self.label)


NOTHING = Content({"text/plain": ""}, {})
"""What stands in an output that was cleared."""


def joined(event: Shown) -> bytes:
    """What was displayed, as it came."""
    return b"".join(map(bytes, event.bundle))
