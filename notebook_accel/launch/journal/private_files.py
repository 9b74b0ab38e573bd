"""Opens files that only the user may read."""

from __future__ import annotations

import os


def open_private(path: str, flags: int) -> int:
    """The `opener` of a file in a job's folder: a new one is the user's alone, and a link is not followed."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)
