"""Marks in a rank's output pipes, which say where among its lines the rank has displayed something.

Pipes and the channel are not ordered relative to each other. Before it emits an event that has a place among the lines,
a rank therefore writes the event's number into its pipes; `rank_streams.py` removes the mark, and passes on what
follows it only after the event.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Callable, Sequence

from notebook_accel import events, rank_local
from notebook_accel.events import Event

_START = b"\x00\x1bnotebook-accel "
"""No text contains it, and no terminal shows it."""
_MARK = re.compile(re.escape(_START) + rb"(\d{1,18})\x00")
_LONGEST = len(_START) + 19
_PIPES = f"{__name__}.pipes"
_COUNT = f"{__name__}.count"
_lock = threading.Lock()


def set_pipes(fds: Sequence[int]) -> None:
    """Sets the descriptors of this rank's output pipes, which the user's code does not redirect."""
    rank_local.space()[_PIPES] = tuple(fds)


def emit(make: Callable[[int], Event]) -> None:
    """Emits an event in its place among what this rank has written.

    Args:
        make: Creates the event with the number of its mark; 0 if this rank's output is not read from pipes.
    """
    space = rank_local.space()
    pipes: Sequence[int] = space.get(_PIPES, ())
    with _lock:  # all pipes have the marks in the order of the events
        number = space[_COUNT] = space.get(_COUNT, 0) + 1
        for fd in pipes:
            with contextlib.suppress(OSError):  # the driver has gone, or the user's code has closed it
                os.write(fd, b"%b%d\x00" % (_START, number))  # so short that it is written whole
        events.emit(make(number if pipes else 0))


def split(data: bytes) -> tuple[bytes, int | None, bytes]:
    """Splits what was read at its first mark.

    Returns:
        What comes before the mark, its number, and what follows it. Without a mark, the number is `None`; what follows
        then is the end of the data if it may be the beginning of a mark.
    """
    found = _MARK.search(data)
    if found is not None:
        return data[: found.start()], int(found[1]), data[found.end() :]
    begin = data.rfind(b"\x00", max(0, len(data) - _LONGEST))
    while begin >= 0 and not _may_begin_mark(data[begin:]):
        begin = data.rfind(b"\x00", max(0, len(data) - _LONGEST), begin)
    return (data, None, b"") if begin < 0 else (data[:begin], None, data[begin:])


def without_marks(data: bytes) -> bytes:
    """What was read, without its marks."""
    return _MARK.sub(b"", data)


def _may_begin_mark(data: bytes) -> bool:
    rest = data[len(_START) :]
    return _START.startswith(data[: len(_START)]) and (not rest or rest.isdigit())
