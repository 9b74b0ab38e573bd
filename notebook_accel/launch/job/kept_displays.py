"""The rich outputs of a rank that are stored with its state, so that `attach` can show them again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

from notebook_accel.events import Cleared, Shown

MAX_DISPLAYS = 500
"""The number of a rank's last rich outputs that are stored."""
MAX_BYTES = 2 * 2**20
"""The bytes of these outputs together. If there are more, the oldest are reduced to their text."""
_MAX_TEXT = 500
"""Characters of the text of an output that is reduced to it."""
_SMALL = 1000
"""Bytes of an output that is not reduced."""


class KeptDisplays:
    """The last rich outputs of one rank, each with its place among the rank's lines.

    An update replaces the content of its output, and what is cleared is dropped.
    """

    def __init__(self) -> None:
        self._kept: list[tuple[int, Shown]] = []
        """Each with its place: the number of lines that the rank had written before."""
        self._first_line = 0
        """The number of the rank's first line that is stored."""
        self._clears_at_next = False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KeptDisplays) and list(self.events()) == list(other.events())

    __hash__ = None  # type: ignore[assignment]

    def apply(self, event: Shown | Cleared, written: int) -> None:
        """Applies an event of a rank that has written `written` lines."""
        if isinstance(event, Cleared):
            self._clears_at_next = event.wait
            if not event.wait:
                self._kept.clear()
        elif event.update:
            self._update(event)
        else:
            if self._clears_at_next:
                self.apply(Cleared(), written)
            self._kept.append((written, replace(event, mark=0)))
        self._limit()

    def drop_lines(self, first: int) -> None:
        """Records that the rank's lines before this number are no longer stored."""
        self._first_line = first

    def events(self) -> Iterator[tuple[int, Shown | Cleared]]:
        """The shortest sequence of events whose fold equals this state, each with its place."""
        place = 0
        for place, shown in self._kept:
            yield max(place, self._first_line), shown
        if self._clears_at_next:
            yield max(place, self._first_line), Cleared(wait=True)

    def _update(self, event: Shown) -> None:
        for at, (place, shown) in enumerate(self._kept):
            if shown.display_id == event.display_id:
                self._kept[at] = place, replace(shown, bundle=event.bundle)

    def _limit(self) -> None:
        del self._kept[:-MAX_DISPLAYS]
        excess = sum(size_of(shown) for _, shown in self._kept) - MAX_BYTES
        for at, (place, shown) in enumerate(self._kept[:-1]):
            if excess <= 0:
                break
            if size_of(shown) < _SMALL:
                continue
            self._kept[at] = place, reduced(shown)
            excess -= size_of(shown) - size_of(self._kept[at][1])


def size_of(shown: Shown) -> int:
    """Bytes of its content."""
    return sum(map(len, shown.bundle))


def reduced(shown: Shown) -> Shown:
    """The output with only its text."""
    text = str(json.loads(b"".join(map(bytes, shown.bundle)))["data"].get("text/plain", ""))[:_MAX_TEXT]
    return replace(shown, bundle=[json.dumps({"data": {"text/plain": text}, "metadata": {}}).encode()])
