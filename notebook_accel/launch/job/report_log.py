"""Every report of a job's ranks, in the order of arrival: in memory while they are few, otherwise in a file."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Protocol

from notebook_accel.events import Reports

if TYPE_CHECKING:
    from pandas import DataFrame

MOST_IN_MEMORY = 4 * 2**20
"""Bytes of reports that a job keeps in memory although a file has them, so that they outlive its journal."""
Entry = tuple[int, Reports]
"""A rank's index in the job, and what it reported."""
Row = dict[str, "float | int | None"]


class ReportStore(Protocol):
    """A file of reports."""

    def append(self, entries: Sequence[Entry]) -> None:
        """Adds reports: all of them, or none.

        Raises:
            OSError: They can't be written.
        """

    def read(self) -> Iterable[Entry]:
        """Yields the reports.

        Raises:
            JobLostError: The file is gone.
        """


class ReportLog:
    """The reports of one job. Any thread may read while another adds and saves."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: list[Entry] = []
        """All, or those that came after the ones that only the store has."""
        self._saved = 0
        """The number of these that the store has too."""
        self._freed = 0
        """The number of those that only the store has."""
        self._size = 0
        """Bytes in memory."""
        self._store: ReportStore | None = None
        self._is_follower = False
        self.needs_store = False
        """Whether the store has reports that are no longer in memory."""

    @property
    def has_unsaved(self) -> bool:
        return self._saved < len(self._entries)

    @property
    def size(self) -> int:
        """Bytes in memory."""
        return self._size

    def add(self, rank: int, reports: Reports) -> None:
        """Adds what a rank reported."""
        with self._lock:
            self._entries.append((rank, reports))
            self._size += sum(memoryview(column).nbytes for column in reports.columns)
            if self._is_follower:
                self._saved += 1
                self._free()

    def save(self, store: ReportStore) -> None:
        """Adds to a store what it lacks, and frees the memory if the reports are many.

        Raises:
            OSError: They can't be written. They are still in memory.
        """
        with self._lock:
            if store is not self._store:
                entries, saved = list(self._read()), len(self._entries)
            else:
                entries, saved = self._entries[self._saved :], len(self._entries)
            if entries:
                store.append(entries)
            self._store, self._saved = store, saved
            self._free()

    def follow(self, store: ReportStore) -> None:
        """Takes the store as one that another process fills with the reports that are added here."""
        with self._lock:
            self._store, self._is_follower = store, True

    def read(self) -> list[Entry]:
        """All reports.

        Raises:
            JobLostError: They were in a file that is gone.
        """
        with self._lock:
            return list(self._read())

    def since(self, start: int) -> Iterable[Entry]:
        """The reports from number `start` on; those that are only in the store are read when they are iterated over.

        Raises:
            JobLostError: They were in a file that is gone. Also raised later, by the iterator.
        """
        with self._lock:
            entries = self._entries[max(0, start - self._freed) :]
            if start >= self._freed:
                return entries
            assert self._store is not None
            return chain(islice(self._store.read(), start, self._freed), entries)

    def _read(self) -> Iterator[Entry]:
        if self.needs_store:
            assert self._store is not None
            earlier = self._store.read()
            return iter(earlier) if self._is_follower else chain(earlier, self._entries[self._saved :])
        return iter(self._entries)

    def _free(self) -> None:
        if self._size > MOST_IN_MEMORY or self.needs_store:
            self.needs_store = True
            self._freed += self._saved
            del self._entries[: self._saved]
            self._saved = 0
            self._size = sum(memoryview(column).nbytes for _, each in self._entries for column in each.columns)


def table(entries: Iterable[Entry], first: int, began: float) -> DataFrame | list[Row]:
    """One row for each report, rank by rank: a DataFrame if pandas is installed, otherwise a list of dicts.

    Args:
        entries: The reports.
        first: The number of the first rank.
        began: When the job began, in seconds since the epoch.
    """
    by_rank = sorted(entries, key=lambda entry: entry[0])  # stable: those of a rank stay in order
    has_attempts = len({reports.attempt for _, reports in by_rank}) > 1
    try:
        import pandas as pd
    except ImportError:
        return list(_rows(by_rank, first, began, has_attempts))
    return pd.DataFrame(_columns(by_rank, first, began, has_attempts))


def _rows(entries: Iterable[Entry], first: int, began: float, has_attempts: bool) -> Iterator[Row]:
    for rank, reports in entries:
        attempt: Row = {"attempt": reports.attempt} if has_attempts else {}
        for values, step, at in reports.rows():
            yield {"rank": first + rank, **attempt, "step": step, "seconds": at - began, **values}


def _columns(entries: Iterable[Entry], first: int, began: float, has_attempts: bool) -> dict[str, list[Any]]:
    """The same, as columns: a million rows as dicts would take half a gigabyte."""
    ranks: list[int] = []
    attempts: list[int | None] = []
    steps: list[int | None] = []
    seconds: list[float] = []
    columns: dict[str, list[Any]] = {}
    for rank, reports in entries:
        for values, step, at in reports.rows():
            for name, value in values.items():
                column = columns.get(name)
                if column is None:
                    column = columns[name] = []
                if len(column) < len(steps):
                    column.extend([float("nan")] * (len(steps) - len(column)))
                column.append(value)
            steps.append(step)
            seconds.append(at - began)
        count = len(steps) - len(ranks)
        ranks.extend([first + rank] * count)
        attempts.extend([reports.attempt] * count)
    for column in columns.values():
        column.extend([float("nan")] * (len(steps) - len(column)))
    attempt: dict[str, list[Any]] = {"attempt": attempts} if has_attempts else {}
    return {"rank": ranks, **attempt, "step": steps, "seconds": seconds, **columns}
