"""Reports as a flat list: the form in which a rank holds them, and packs them into events.

Loops report at every step. A tuple for each report would make the garbage collector go through all of them again and
again, which takes longer than the report. It doesn't track what a row consists of: a dictionary of numbers, a step or
`None`, and the time.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any

from notebook_accel.events import Report, Reports, as_float
from notebook_accel.events.emit import MetricsSink
from notebook_accel.events.reports import NO_STEP
from notebook_accel.launch.wire.terminal_codes import plain

WIDTH = 3
"""The items of a row: the values by name, the step, and the time in seconds since the epoch."""
_MOST_NAMES = 1000
_plain_names: dict[Any, str] = {}
"""Names as valid text: to look at each again would take most of the time that packing takes."""


def appender(rows: list[Any], most: int, when_full: Callable[[], object]) -> MetricsSink:
    """The function that appends a report: a closure, since loops call it at every step.

    Each row is appended by one operation, so any thread may call it.

    Args:
        rows: The rows.
        most: The number of rows from which on each call also calls `when_full`.
        when_full: Makes room.
    """
    extend, now, most_items = rows.extend, time.time, WIDTH * most

    def append(values: dict[str, float], step: int | None) -> None:
        extend((values, step, now()))
        if len(rows) >= most_items:
            when_full()

    return append


def pack(rows: Sequence[Any]) -> list[Reports]:
    """Packs rows into events."""
    values, steps, times = rows[::WIDTH], rows[1::WIDTH], rows[2::WIDTH]
    uniform = _pack_uniform(values, steps, times)
    return list(Reports.pack(map(_report, values, steps, times))) if uniform is None else [uniform]


def _pack_uniform(values: Sequence[dict[Any, Any]], steps: Sequence[Any], times: Iterable[float]) -> Reports | None:
    """Packs rows with the same names, whole columns at a time; `None` if they are not that simple."""
    names = (*values[0],)
    # No dictionary has a name twice, so all have the same names if these, in a row, are those of the first, repeated.
    if list(chain.from_iterable(values)) != [*names] * len(values):
        return None
    if steps.count(None) == len(steps):
        steps = [NO_STEP] * len(steps)
    numbers = list(chain.from_iterable(map(dict.values, values)))
    try:
        columns = array("H", bytes(2 * len(values))), array("q", steps), array("d", times), array("d", numbers)
    except (TypeError, OverflowError):
        return None  # a step or a value that a column can't hold
    return Reports([[_plain(name) for name in names]], columns=[column.tobytes() for column in columns])


def _report(values: dict[Any, Any], step: int | None, at: float) -> Report:
    """The report with values that are floats: NaN and infinity are what the user asked for."""
    return Report({_plain(name): as_float(value) for name, value in values.items()}, step, at)


def _plain(name: Any) -> str:
    """The name as valid text."""
    found = _plain_names.get(name)
    if found is None:
        found = plain(str(name))
        if len(_plain_names) < _MOST_NAMES:
            _plain_names[name] = found
    return found
