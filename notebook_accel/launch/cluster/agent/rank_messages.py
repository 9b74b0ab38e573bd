"""Encodes the messages of ranks for the kernel, on the ranks' own node.

Clocks and host names are translated, and messages are encoded into the bytes that the kernel reads, so that the bridge,
which receives from all nodes, can pass them on without decoding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from notebook_accel.events import Bar, Hello
from notebook_accel.launch.cluster.protocol import Frame, weight
from notebook_accel.launch.wire import stream

_MOST_TOGETHER, _SHORT = 500, 2**14
"""How many messages share a frame, and how many bytes they have at most; a longer message is sent alone."""


@dataclass(frozen=True)
class RankMessages:
    """Encodes the messages of one node's ranks."""

    label: str
    """The node's name as users know it."""
    ahead: float
    """How many seconds its clock is ahead of the notebook's."""

    def said(self, group: int, rank: int, header: dict[str, Any], blobs: Sequence[Any], *, stacks: bool) -> Frame:
        """Encodes a message of a rank for the backlog.

        Args:
            group: The number of the group.
            rank: The rank's number in the group.
            header: The message's header, which is modified.
            blobs: The message's blobs.
            stacks: Whether the message carried the descriptor of the rank's stacks file. That descriptor stays here,
                and the bridge sends another.
        """
        kind, bar = header.get("kind"), None
        if kind == Bar.kind:
            bar = header["bar"]  # the time in the message is of a clock of the rank's own
        elif isinstance(header.get("at"), (int, float)):
            header["at"] = self.here(header["at"])
        if kind == Hello.kind:
            header["host"] = self.label
        text = stream.text({**header, "fds": 1} if stacks else header, blobs)
        plain = len(text) < _SHORT and not blobs and not stacks
        envelope = {"op": "said", "group": group, "rank": rank, "stacks": stacks, "bar": bar, "plain": plain}
        return with_weight(envelope, [text, *blobs])

    def here(self, at: float) -> float:
        """Translates a time from the node's clock to the notebook's."""
        return at - self.ahead


def with_weight(header: Mapping[str, Any], blobs: Sequence[Any]) -> Frame:
    """A frame with the weight that it counts towards `UNREAD`."""
    return {**header, "weight": weight(blobs)}, blobs


def coalesce(frames: Sequence[Frame]) -> list[Frame]:
    """Joins consecutive messages of each rank into one frame."""
    rows: list[list[Frame]] = []
    latest: dict[tuple[int, int], list[Frame]] = {}
    """For each rank, the row that its next message may join."""
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
    return [_joined(row) if row[0][0]["op"] == "said" else row[0] for row in rows]


def _joined(row: Sequence[Frame]) -> Frame:
    (header, (text, *blobs)), *others = row
    joined = {name: header[name] for name in ("op", "group", "rank", "stacks")}
    total = header["weight"] + sum(other["weight"] for other, _ in others)
    return {**joined, "weight": total}, [stream.frame([text, *(rest[0] for _, rest in others)]), *blobs]
