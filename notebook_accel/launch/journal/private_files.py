"""How the files in a job's folder are opened and written."""

from __future__ import annotations

import os


def open_private(path: str | os.PathLike[str], flags: int) -> int:
    """The `opener` of a file in a job's folder: a new one is the user's alone, and a link is not followed."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def write_all(fd: int, data: bytes) -> None:
    """Writes all of it, in as many calls as that takes.

    Raises:
        OSError: It can't be written, or not whole.
    """
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
