"""The trace that torch's profiler writes, shortened if it is too long, and compressed.

The file is JSON with one event after the other, which is found here by its layout: to parse it would hold up the other
threads of the rank for seconds.
"""

from __future__ import annotations

import gzip
import mmap
import re
from collections.abc import Iterator
from pathlib import Path

_EVENT = re.compile(rb"\n  \{\n.*?\n  \}(?=[,\s])", re.DOTALL)
_DURATION = re.compile(rb'"dur": ([0-9.]+)')
_FLOW = re.compile(rb'"ph": "[sft]"')
_LEVEL = 1
"""The compression; a higher level takes several times as long, and saves little."""


def compressed(path: Path, most_bytes: int, keep: bytes) -> tuple[bytes, str]:
    """The content of the file, compressed, and a note about the events that are left out.

    Args:
        path: The file.
        most_bytes: How long the content may be before compression, about.
        keep: Events with this in their text are never left out.
    """
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        if len(content) <= most_bytes:
            return gzip.compress(content, _LEVEL), ""
        return _shortened(content, most_bytes, keep)


def _shortened(content: mmap.mmap, most_bytes: int, keep: bytes) -> tuple[bytes, str]:
    """The same with the longest events only. Arrows between events go first: they would point to nothing."""
    lengths = [(_duration(event, keep), len(event)) for event in _events(content)]
    left, shortest = most_bytes, 0.0
    for duration, length in sorted(lengths, reverse=True):
        left -= length
        if left < 0:
            shortest = duration
            break
    kept = [event for event in _events(content) if _duration(event, keep) > shortest]
    first = next(_EVENT.finditer(content)).start()
    text = b"".join((content[:first], b",".join(kept), b"\n  ]\n}\n"))
    dropped = len(lengths) - len(kept)
    note = f"{dropped} of {len(lengths)} events are left out of the trace, those of up to {max(shortest, 0.0):g} µs"
    return gzip.compress(text, _LEVEL), note


def _events(content: mmap.mmap) -> Iterator[bytes]:
    return (match.group() for match in _EVENT.finditer(content))


def _duration(event: bytes, keep: bytes) -> float:
    """Microseconds; infinity for what has no duration but is always kept, and less than any for arrows."""
    if _FLOW.search(event):
        return -1.0
    found = _DURATION.search(event)
    return float("inf") if found is None or keep in event else float(found[1])
