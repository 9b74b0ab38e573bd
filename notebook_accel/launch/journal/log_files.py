"""The files of a job's log, beside its journal. When they become too large, the oldest are removed."""

from __future__ import annotations

import contextlib
import os
import re
import time
from dataclasses import dataclass, replace
from pathlib import Path

from notebook_accel.launch.journal.records import write_all

LIMIT = 128 * 2**20
"""The most bytes of a job's log on disk; the oldest lines are removed."""
FILE_SIZE = 8 * 2**20
"""Bytes from which on a file is not added to."""
_NAME = re.compile(r"log-(\d{15})")
_SETTLED = 2_500_000_000
"""Nanoseconds after which a change of a folder has another time of change, on any file system."""


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
    """The files of one job's log, named after the positions that they begin at; see `OutputLog`.

    The folder is listed again only after files were added to it or removed: otherwise only the last file grows.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: list[_File] = []
        self._listed: tuple[int, int] | None = None
        """Identifies the state of the folder in which these are its files; `None` if it may have changed since."""

    def extent(self) -> tuple[int, int]:
        files = self._files()
        return (files[0].start, files[-1].end) if files else (0, 0)

    def append(self, position: int, data: bytes) -> None:
        files = self._files()
        last = files[-1] if files else None
        if last is None or last.end != position or last.size >= FILE_SIZE:
            last = _File(f"{self._folder}/log-{position:015d}", position, 0)
        fd = os.open(last.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        try:
            write_all(fd, data)
        except OSError:
            os.ftruncate(fd, last.size)
            raise
        finally:
            os.close(fd)
        self._remove_oldest(files, len(data))

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

    def _remove_oldest(self, files: list[_File], added: int) -> None:
        total = added + sum(file.size for file in files)
        for file in files[:-1]:
            if total <= LIMIT:
                return
            with contextlib.suppress(OSError):
                os.unlink(file.path)
            total -= file.size

    def _files(self) -> list[_File]:
        """The files without a gap between them, up to the last; what is before a gap is not read."""
        try:
            folder = os.stat(self._folder)
            state = folder.st_ino, folder.st_mtime_ns
            if state != self._listed:
                self._listed = state if time.time_ns() - folder.st_mtime_ns > _SETTLED else None
                self._known = self._list()
            elif self._known:
                last = self._known[-1]
                self._known = [*self._known[:-1], replace(last, size=os.stat(last.path, follow_symlinks=False).st_size)]
        except OSError:
            self._listed, self._known = None, []
        return self._known

    def _list(self) -> list[_File]:
        found = []
        with os.scandir(self._folder) as entries:
            for entry in entries:
                match = _NAME.fullmatch(entry.name)
                if match is not None and entry.is_file(follow_symlinks=False):
                    found.append(_File(entry.path, int(match[1]), entry.stat(follow_symlinks=False).st_size))
        found.sort(key=lambda file: file.start)
        for at in range(len(found) - 1, 0, -1):
            if found[at - 1].end != found[at].start:
                return found[at:]
        return found
