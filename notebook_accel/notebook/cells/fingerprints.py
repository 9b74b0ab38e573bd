"""Fingerprints of variables, which tell cheaply whether a variable's content has changed since it was sent.

A fingerprint is a hash of what pickling the value yields. It differs from the payload in three ways: large arrays are
read in samples, a large tensor is known by its version counter and its address, and functions and classes of
`__main__` by what they hold. Only fingerprints that were taken in one process can be compared, except for
`Fingerprint.complete`.
"""

from __future__ import annotations

import types
from dataclasses import dataclass
from typing import Any

from notebook_accel import garbage_collection
from notebook_accel.notebook.cells.fingerprint_pickler import FingerprintPickler, HashSink, is_imported


@dataclass(frozen=True)
class Fingerprint:
    """What a value held at some moment."""

    digest: bytes
    memory: frozenset[int] = frozenset()
    """The addresses of its arrays and tensors."""
    is_sampled: bool = False
    """Whether an array was too large to be read completely."""
    complete: int | None = None
    """A checksum of all sampled arrays, the same in every process; `None` if it was not asked for or takes too long."""


BRIEFLY = 0.1
"""Seconds of CPU time for a fingerprint that is taken before each cell."""
_CONSTANT = Fingerprint(b"")
_CONSTANTS = (int, float, complex, bool, str, bytes, range, type(None), types.ModuleType, types.BuiltinFunctionType)


def take(value: Any, *, complete: bool = False, seconds: float = 1.0) -> Fingerprint | None:
    """Takes the fingerprint of a value; `None` if that is impossible or takes too long.

    Args:
        value: The value.
        complete: Whether to read sampled arrays completely, too.
        seconds: The CPU time after which to give up. A first time may import modules.
    """
    if type(value) in _CONSTANTS or is_imported(value):
        return _CONSTANT
    with garbage_collection.paused():  # a full one, once torch is imported, takes longer than a fingerprint may take
        sink = HashSink(seconds)
        pickler = FingerprintPickler(sink)
        try:
            pickler.dump(value)
            sink.check_time()
            checksum = sink.complete() if complete and sink.sampled else None
        except Exception:  # what pickling the user's objects may raise
            return None
        finally:
            pickler.clear_memo()
    return Fingerprint(sink.hash.digest(), frozenset(sink.memory), bool(sink.sampled), checksum)


def differ(before: Fingerprint | None, now: Fingerprint | None, *, complete: bool) -> bool | None:
    """Whether a value has changed between two fingerprints; `None` if that can't be told.

    Args:
        before: Its fingerprint then.
        now: Its fingerprint now.
        complete: Whether arrays that were sampled must be equal completely. Otherwise, equal samples are enough.
    """
    if before is None or now is None:
        return None
    if now.digest != before.digest:
        return True
    if not (complete and now.is_sampled):
        return False
    return None if None in (before.complete, now.complete) else before.complete != now.complete
