"""Files of a job's folder that only the user may read, and whose pickles only the user may have written."""

from __future__ import annotations

import os
from pathlib import Path

from notebook_accel.errors import JobLostError


def open_private(path: str, flags: int) -> int:
    """The `opener` of a file in a job's folder: a new one is the user's alone, and a link is not followed."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def read_pickles(path: Path, what: str) -> bytes:
    """Reads a file of a job's folder, for its pickles to be unpickled.

    Args:
        path: The file.
        what: What is in it, as messages say it: `its results`.

    Raises:
        FileNotFoundError: There is none.
        JobLostError: It can't be read, or another user may have written it.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise JobLostError(f"{what} can't be read: {error}") from error
    for each in (path.parent.parent, path.parent, path):
        if not _is_private(each):
            raise JobLostError(
                f"{what} won't be unpickled, because other users may have written to {each}: a pickle can run any code"
            )
    return data


def _is_private(path: Path) -> bool:
    """Whether only this user can have written it."""
    try:
        status = path.lstat()
    except OSError:
        return False
    return status.st_uid == os.getuid() and not status.st_mode & 0o022 and not path.is_symlink()
