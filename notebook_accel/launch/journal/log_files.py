"""The files of a job's log, and of the contents of its rich outputs. When they become too large, the oldest go."""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path

from notebook_accel.launch.journal.private_files import append

LIMIT = 128 * 2**20
"""The most bytes of a job's log on disk; the oldest lines are removed."""
CONTENTS_LIMIT = 16 * 2**20
"""The same for the contents of rich outputs."""
FILE_SIZE = 8 * 2**20
"""Bytes from which on a file is not added to; less where the limit is low."""


@dataclass(frozen=True)
class _File:
    path: str
    start: int
    """The position of its first byte."""
    size: int

    @property
    def end(self) -> int:
        return self.start + self.size


class LogFiles:
    """The files of one job's log, named after the positions that they begin at; see `ByteLog`.

    Args:
        folder: The job's folder.
        name: The beginning of their names.
        limit: The most bytes of all of them; by default, `LIMIT`.
    """

    def __init__(self, folder: Path, name: str = "log", limit: int | None = None) -> None:
        self._folder = folder
        self._name = re.compile(rf"{name}-(\d{{15}})")
        self._prefix = f"{folder}/{name}-"
        self._given_limit = limit
        self._own: list[_File] = []
        """Those that this process has written, which needs no look at the folder to write on."""

    @property
    def _limit(self) -> int:
        return LIMIT if self._given_limit is None else self._given_limit

    def extent(self) -> tuple[int, int]:
        files = self._files()
        return (files[0].start, files[-1].end) if files else (0, 0)

    def append(self, position: int, data: bytes) -> None:
        files = self._own or self._files()
        last = files[-1] if files else None
        if last is None or last.end != position or last.size >= min(FILE_SIZE, self._limit // 4):
            last = _File(f"{self._prefix}{position:015d}", position, 0)
            files.append(last)
        append(last.path, [data])
        files[-1] = replace(last, size=last.size + len(data))
        self._own = self._without_oldest(files)

    def read(self, start: int, stop: int) -> bytes:
        parts = []
        for file in self._files():
            if file.start < stop and file.end > start:
                with open(file.path, "rb") as opened:
                    opened.seek(max(0, start - file.start))
                    parts.append(opened.read(min(stop, file.end) - max(start, file.start)))
        if not parts and stop > start:
            raise FileNotFoundError(f"the log is no longer in {self._folder}")
        return b"".join(parts)

    def _without_oldest(self, files: list[_File]) -> list[_File]:
        total = sum(file.size for file in files)
        while total > self._limit and len(files) > 1:
            oldest = files.pop(0)
            with contextlib.suppress(OSError):
                os.unlink(oldest.path)
            total -= oldest.size
        return files

    def _files(self) -> list[_File]:
        """The files without a gap between them, up to the last; what is before a gap is not read."""
        found = []
        with contextlib.suppress(OSError), os.scandir(self._folder) as entries:
            for entry in entries:
                match = self._name.fullmatch(entry.name)
                if match is not None and entry.is_file(follow_symlinks=False):
                    found.append(_File(entry.path, int(match[1]), entry.stat(follow_symlinks=False).st_size))
        found.sort(key=lambda file: file.start)
        for at in range(len(found) - 1, 0, -1):
            if found[at - 1].end != found[at].start:
                return found[at:]
        return found
