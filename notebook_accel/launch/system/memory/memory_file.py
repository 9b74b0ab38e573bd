"""Files without a name, which need no temporary folder on Linux, and are freed with their last descriptor."""

from __future__ import annotations

import os
import tempfile
from typing import IO


def create() -> int:
    """The descriptor of a new file."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("notebook-accel", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def open_log() -> IO[bytes]:
    """A new file for the output of a process."""
    return os.fdopen(create(), "w+b")
