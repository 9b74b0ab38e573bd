"""`Reports`: many reports of metrics in one event, packed into columns, since a loop may report at every step."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

from notebook_accel.errors import StreamError
from notebook_accel.events.base import Blobs, Event

MOST_ROWS = 2**15
"""The most reports of one event."""
_MOST_CHARACTERS = 2**20
"""About the most characters that the names of one event have together: they travel in its JSON header."""
NO_STEP = -(2**63)
"""In the column of steps, for a report without one. A greater number is not a step either."""
_TYPES = ("H", "q", "d", "d")
"""The types of the columns, as of `array`."""


class Report(NamedTuple):
    """One report."""

    values: Mapping[str, float]
    """By name."""
    step: int | None
    """The training step that they belong to, if the user gave one."""
    at: float
    """Seconds since the epoch."""


@dataclass(frozen=True)
class Reports(Event):
    """Metrics that the user reported, in order."""

    kind = "reports"
    names: Sequence[Sequence[str]]
    """Each combination of names that was reported together."""
    attempt: int | None = None
    """The attempt of the job in which they came; `None` for the current one."""
    clock_ahead: float = 0.0
    """Seconds by which the clock of the rank's node is ahead of the notebook's."""
    columns: Blobs = field(default=(), repr=False)
    """For each report: the index of its names (2 bytes), its step, and its time (8 bytes each); then all values, 8
    bytes each, report after report. In the byte order of the machine."""

    @property
    def count(self) -> int:
        """How many reports it holds."""
        return memoryview(self.columns[0]).nbytes // 2 if self.columns else 0

    @classmethod
    def pack(cls, reports: Iterable[Report]) -> Iterator[Reports]:
        """Yields events that hold these reports."""
        left = iter(reports)
        report = next(left, None)
        while report is not None:
            indices: dict[tuple[str, ...], int] = {}
            columns: list[array[Any]] = [array(code) for code in _TYPES]
            kinds, steps, times, values = columns
            characters = 0
            while report is not None and len(kinds) < MOST_ROWS and characters < _MOST_CHARACTERS:
                names = tuple(report.values)
                index = indices.get(names)
                if index is None:
                    index = indices[names] = len(indices)
                    characters += sum(map(len, names))
                kinds.append(index)
                steps.append(NO_STEP if report.step is None or abs(report.step) >= -NO_STEP else report.step)
                times.append(report.at)
                values.extend(report.values.values())
                report = next(left, None)
            yield cls(list(map(list, indices)), columns=[column.tobytes() for column in columns])

    def rows(self) -> Iterator[Report]:
        """Yields the reports.

        Raises:
            StreamError: The columns don't fit together.
        """
        kinds, steps, times, values = self._columns()
        ahead, remaining = self.clock_ahead, iter(values)
        for kind, step, at in zip(kinds, steps, times, strict=True):
            names = self.names[kind]
            found = dict(zip(names, islice(remaining, len(names)), strict=True))
            yield Report(found, None if step == NO_STEP else step, at - ahead)

    def check(self) -> None:
        """Checks that the columns fit together.

        Raises:
            StreamError: They don't.
        """
        self._columns()

    def series(self, name: str) -> tuple[array[int], array[float], array[float]]:
        """The steps, the times, and the values of one metric, in order; a report without a step has `NO_STEP`.

        The times are those of the rank's node: see `clock_ahead`.

        Raises:
            StreamError: The columns don't fit together.
        """
        if len(self.names) == 1:  # the usual case, without a look at each report
            (names,) = self.names
            if name not in names:
                return array("q"), array("d"), array("d")
            steps, times, values = (self._column(number) for number in (1, 2, 3))
            if len(steps) * len(names) != len(values) or len(steps) != len(times):
                raise StreamError("damaged reports: their columns have different lengths")
            return steps, times, values[list(names).index(name) :: len(names)]
        kinds, steps, times, values = self._columns()
        places = [list(names).index(name) if name in names else -1 for names in self.names]
        found: tuple[array[int], array[float], array[float]] = array("q"), array("d"), array("d")
        begin = 0
        for kind, step, at in zip(kinds, steps, times, strict=True):
            if places[kind] >= 0:
                found[0].append(step)
                found[1].append(at)
                found[2].append(values[begin + places[kind]])
            begin += len(self.names[kind])
        return found

    def _column(self, number: int) -> array[Any]:
        column = array(_TYPES[number])
        try:
            column.frombytes(self.columns[number])
        except (ValueError, IndexError) as error:
            raise StreamError(f"damaged reports: {error}") from error
        return column

    def _columns(self) -> list[Any]:
        if len(self.columns) != len(_TYPES):
            raise StreamError(f"reports with {len(self.columns)} columns instead of {len(_TYPES)}")
        columns = [self._column(number) for number in range(len(_TYPES))]
        kinds, steps, times, values = columns
        try:
            count = sum(len(self.names[kind]) for kind in kinds)
        except IndexError as error:
            raise StreamError(f"damaged reports: {error}") from error
        if not len(kinds) == len(steps) == len(times) or count != len(values):
            raise StreamError("damaged reports: their columns have different lengths")
        return columns
