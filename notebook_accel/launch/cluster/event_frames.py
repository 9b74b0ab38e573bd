"""Frames with the events of ranks, encoded on the ranks' own nodes.

Clocks and host names are translated there, and events are encoded into the bytes that the kernel decodes, so that the
bridge, which receives from all nodes, can pass them on without decoding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from notebook_accel.events import Bar, Event, Exited, Hello, Profiled, Reports, to_wire
from notebook_accel.launch.cluster.clock_offset import ClockOffset
from notebook_accel.launch.cluster.protocol import Frame
from notebook_accel.launch.wire import stream

_MOST_TOGETHER, _SHORT = 500, 2**14
"""How many events share a frame, and how many bytes they have at most; a longer event is sent alone."""
_ENVELOPE = 64
"""The weight of a frame beside its blobs."""


@dataclass(frozen=True)
class EventFrames:
    """Makes the frames of one group on one node."""

    group: int
    """The number of the group."""
    label: str
    """The node's name as users know it."""
    clock: ClockOffset
    """How far its clock is ahead of the notebook's."""

    def of(self, rank: int, event: Event) -> Frame:
        """The frame of an event of a rank, given by its number in the group."""
        if isinstance(event, Hello):
            event = replace(event, host=self.label)
        elif isinstance(event, Reports):
            event = replace(event, clock_ahead=self.clock.ahead)
        elif isinstance(event, Profiled):
            event = replace(event, clock_error=self.clock.error)
        header, blobs = to_wire(event)
        if not isinstance(event, Bar) and isinstance(
            header.get("at"), (int, float)
        ):  # a bar's time is of its own clock
            header["at"] -= self.clock.ahead
        text = stream.text(header, blobs)
        envelope = {
            "op": "events",
            "group": self.group,
            "rank": rank,
            "ended": isinstance(event, Exited),
            "weight": len(text) + sum(memoryview(blob).nbytes for blob in blobs) + _ENVELOPE,
            "bar": event.bar if isinstance(event, Bar) else None,
            "plain": len(text) < _SHORT and not blobs,
        }
        return envelope, [text, *blobs]


def coalesce(frames: Sequence[Frame]) -> list[Frame]:
    """Joins consecutive events of each rank into one frame."""
    rows: list[list[Frame]] = []
    latest: dict[tuple[int, int], list[Frame]] = {}
    """For each rank, the row that its next event may join."""
    for frame in frames:
        header, _ = frame
        speaker = header.get("group", -1), header.get("rank", -1)
        row = latest.pop(speaker, None)
        if row is None or not header.get("plain") or len(row) == _MOST_TOGETHER:
            row = []
            rows.append(row)
        row.append(frame)
        if header.get("plain"):
            latest[speaker] = row
    return [_joined(row) if row[0][0]["op"] == "events" else row[0] for row in rows]


def _joined(row: Sequence[Frame]) -> Frame:
    """One frame of several; the other end decodes its blobs as one stream of messages."""
    (first, (text, *blobs)), *others = row
    header = {
        **{name: first[name] for name in ("op", "group", "rank")},
        "ended": any(header["ended"] for header, _ in row),
        "weight": sum(header["weight"] for header, _ in row),
    }
    return header, [stream.frame([text, *(rest[0] for _, rest in others)]), *blobs]
