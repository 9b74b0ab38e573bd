"""The output of ranks that are threads of one process: each line goes to the pipe of the rank that prints it."""

from __future__ import annotations

import os
import sys
from typing import IO, Any

from notebook_accel import rank_local

_NAMES = ("stdout", "stderr")


class PerRankStream:
    """Replaces `sys.stdout` or `sys.stderr`: passes everything on to the stream of the calling thread's rank."""

    def __init__(self, name: str, default: IO[str]) -> None:
        self._key = f"{__name__}.{name}"
        self._default = default

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream(), name)

    def write(self, text: str) -> int:
        return self._stream().write(text)

    def flush(self) -> None:
        self._stream().flush()

    def _stream(self) -> IO[str]:
        found: IO[str] = rank_local.space().get(self._key, self._default)
        return found


def install(out: int, err: int) -> None:
    """Replaces the standard streams by `PerRankStream`. C code and child processes write to the given descriptors."""
    for fd, own, name in ((out, 1, "stdout"), (err, 2, "stderr")):
        os.dup2(fd, own)
        stream = PerRankStream(name, _open(own))
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def set_streams(out: int, err: int) -> None:
    """Sets the descriptors to which this thread's rank prints."""
    for fd, name in zip((out, err), _NAMES, strict=True):
        rank_local.space()[f"{__name__}.{name}"] = _open(fd)


def _open(fd: int) -> IO[str]:
    return open(fd, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)
