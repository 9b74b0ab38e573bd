"""Reports as a flat list, row after row: the form in which a rank holds them, and packs them into events.

Loops report at every step. Dictionaries and tuples that are held make the garbage collector run more often, and go
through all of them again and again, which takes several times longer than a report. Names, steps, times, and values
are things that it doesn't track.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Sequence
from typing import Any

from notebook_accel.events import Report, Reports, as_float
from notebook_accel.events.emit import MetricsSink
from notebook_accel.events.reports import NO_STEP
from notebook_accel.launch.wire.terminal_codes import plain

_HEAD = 3
"""The items of a row before its values: the names, the step or `NO_STEP`, and the time."""
_MOST_NAMES = 1000
"""The most combinations of names that are remembered."""


def appender(rows: list[Any]) -> MetricsSink:
    """The function that appends a report: a closure, since loops call it at every step.

    Each row is appended by one operation, so any thread may call it.
    """
    known: dict[tuple[str, ...], tuple[str, ...]] = {}
    find, extend, now = known.get, rows.extend, time.time

    def append(values: dict[str, float], step: int | None) -> None:
        # The names are one object for all rows that have them: to hold one for each row would be to hold many tuples.
        names = find(key := (*values,)) or _remember(known, key)
        extend((names, NO_STEP if step is None else step, now(), *values.values()))

    return append


def _remember(known: dict[tuple[str, ...], tuple[str, ...]], key: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the names as valid text."""
    names = tuple(plain(str(name)) for name in key)
    if len(known) < _MOST_NAMES:
        known[key] = names
    return names


def pack(rows: Sequence[Any], most: int) -> tuple[list[Reports], int]:
    """Packs the first rows into events; returns these, and how many items of the list they are.

    Args:
        rows: Rows that are complete; at least one.
        most: The most rows to pack.
    """
    names = rows[0]
    width = _HEAD + len(names)
    piece = rows[: most * width]
    firsts = piece[::width]
    # All rows are as wide as the first, if there are its names where each would begin.
    if len(piece) % width == 0 and firsts.count(names) == len(firsts):
        try:
            return [_alike(names, piece, len(firsts))], len(piece)
        except (TypeError, ValueError, OverflowError):
            pass  # a value or a step beyond what a column holds
    reports, end = [], 0
    while end < len(rows) and len(reports) < most:
        begin, end = end, end + _HEAD + len(rows[end])
        reports.append(_report(rows[begin:end]))
    return list(Reports.pack(reports)), end


def items(reports: Reports) -> int:
    """How many items of a list the rows of an event are."""
    return _HEAD * reports.count + memoryview(reports.columns[-1]).nbytes // 8


def _alike(names: tuple[str, ...], rows: Sequence[Any], number: int) -> Reports:
    """Packs rows of the same names: whole columns at a time."""
    width = _HEAD + len(names)
    values = array("d", bytes(8 * number * len(names)))
    for place in range(len(names)):
        values[place :: len(names)] = array("d", rows[_HEAD + place :: width])
    columns = array("H", bytes(2 * number)), array("q", rows[1::width]), array("d", rows[2::width]), values
    return Reports([list(names)], columns=[column.tobytes() for column in columns])


def _report(row: Sequence[Any]) -> Report:
    """The report with values that are floats: NaN and infinity are what the user asked for."""
    names, step, at, *values = row
    found = dict(zip(names, map(as_float, values), strict=True))
    return Report(found, None if step == NO_STEP else step, at)
