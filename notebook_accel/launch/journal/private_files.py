"""How the files that are this user's alone are opened and written: those in a job's folder, above all."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

_OTHERS = 0o077


def make_private(folder: Path) -> None:
    """Makes a folder that is the user's alone, unless it is there.

    Raises:
        OSError: It can't be made, or is another user's.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_mode & _OTHERS:
        folder.chmod(0o700)


def is_written_by_us(status: os.stat_result) -> bool:
    """Whether no other user can have written what this is the status of."""
    return status.st_uid == os.getuid() and not status.st_mode & 0o022


def open_private(path: str | os.PathLike[str], flags: int) -> int:
    """The `opener` of a file in a job's folder: a new one is the user's alone, and a link is not followed."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def write_all(fd: int, data: bytes | bytearray | memoryview) -> None:
    """Writes all of it, in as many calls as that takes.

    Raises:
        OSError: It can't be written, or not whole.
    """
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def append(path: str | os.PathLike[str], parts: Iterable[bytes | bytearray | memoryview]) -> None:
    """Adds to the end of a file, which need not exist yet: all parts, or none.

    Raises:
        OSError: They can't be written.
    """
    fd = open_private(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    size = os.fstat(fd).st_size
    try:
        for part in parts:
            write_all(fd, part)
    except OSError:
        os.ftruncate(fd, size)
        raise
    finally:
        os.close(fd)
