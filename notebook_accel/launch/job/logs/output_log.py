"""Every line that the ranks of a job have written, in the order of arrival.

The lines are bytes, one after the other, over all attempts. A position in the log is a number of bytes from its
beginning, which stays the same when the oldest lines are removed.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from notebook_accel.launch.job.logs.log_lines import encode

MOST_LINES_IN_NOTEBOOK, MOST_CHARACTERS_IN_NOTEBOOK = 1000, 2**18
"""What a notebook shows of the beginning of a job's output, and as much of its end."""
MOST_IN_MEMORY = 8 * 2**20
"""Bytes that stay in memory if nothing stores them."""


class LogStore(Protocol):
    """Files that hold a log, or its end."""

    def extent(self) -> tuple[int, int]:
        """The positions of the first byte that is stored and of the end."""

    def append(self, position: int, data: bytes) -> None:
        """Adds lines at a position, which is the end unless lines are missing: all of them, or none.

        Raises:
            OSError: They can't be written.
        """

    def read(self, start: int, stop: int) -> bytes:
        """The bytes between two positions, as far as they are stored.

        Raises:
            OSError: They can't be read.
        """


class OutputLog:
    """The log of one job. Any thread may read while another adds and saves."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._store: LogStore | None = None
        self._is_follower = False
        self._unsaved: deque[bytes] = deque()
        """What no store has, or what came after it."""
        self._unsaved_size = 0
        self._end = 0
        self._count = 0

    def add(self, rank: int, stream: str, at: float, texts: Sequence[str]) -> None:
        """Adds lines that a rank has written.

        Args:
            rank: The global rank.
            stream: `stdout` or `stderr`.
            at: Seconds since the job began.
            texts: The lines, without their newlines.
        """
        if not texts:
            return
        data = encode(rank, stream, int(1000 * at), texts)
        with self._lock:
            self._unsaved.append(data)
            self._unsaved_size += len(data)
            self._end += len(data)
            self._count += len(texts)
            while self._unsaved_size > MOST_IN_MEMORY and len(self._unsaved) > 1:
                self._unsaved_size -= len(self._unsaved.popleft())

    @property
    def is_long(self) -> bool:
        """Whether more lines were added than a notebook is sure to show."""
        return self._count > MOST_LINES_IN_NOTEBOOK or self._end > MOST_CHARACTERS_IN_NOTEBOOK

    @property
    def unsaved(self) -> int:
        """Bytes that no store has."""
        return self._unsaved_size

    def save(self, store: LogStore) -> None:
        """Moves what is in memory to a store.

        Raises:
            OSError: It can't be written. It is still in memory.
        """
        with self._lock:
            self._store = store
            if self._unsaved:
                store.append(self._end - self._unsaved_size, b"".join(self._unsaved))
                self._unsaved.clear()
                self._unsaved_size = 0

    def follow(self, store: LogStore) -> None:
        """Takes the store as one that another process fills."""
        with self._lock:
            self._store, self._is_follower = store, True

    def extent(self) -> tuple[int, int]:
        """The positions of the first byte that is still there, and of the end."""
        with self._lock:
            return self._extent()

    def read(self, start: int, stop: int) -> bytes:
        """The bytes between two positions, as far as they are there.

        Raises:
            OSError: They can't be read, for example because the job's folder was removed.
        """
        with self._lock:
            begun = self._end - self._unsaved_size
            if self._is_follower or stop <= begun:
                return b"" if self._store is None else self._store.read(start, stop)
            stored = b"" if self._store is None or start >= begun else self._store.read(start, begun)
            held = b"".join(self._unsaved)
            return stored + held[max(0, start - begun) : stop - begun]

    def _extent(self) -> tuple[int, int]:
        if self._is_follower:
            return (0, 0) if self._store is None else self._store.extent()
        begun = self._end - self._unsaved_size
        if self._store is None:
            return begun, self._end
        first, end = self._store.extent()
        return (first if first < end == begun else begun), self._end
