"""Finds the line that gave a name its value, in the compiled code of a function."""

from __future__ import annotations

import dis
import linecache
from types import CodeType

from notebook_accel.events import Frame

_STORES = ("STORE_FAST", "STORE_NAME", "STORE_GLOBAL", "STORE_DEREF", "STORE_FAST_STORE_FAST", "STORE_FAST_LOAD_FAST")
"""The last two, of Python 3.13, have a pair of names."""


def line_that_assigned(code: CodeType, name: str, lineno: int) -> Frame | None:
    """The last line up to `lineno` that assigns the name, or the last one of all, as in a loop.

    Returns:
        That line; `None` if the name is an argument, or is assigned elsewhere.
    """
    lines = sorted(_lines(code, name))
    if not lines:
        return None
    found = max((line for line in lines if line <= lineno), default=lines[-1])
    return Frame(code.co_filename, found, code.co_name, linecache.getline(code.co_filename, found).strip())


def _lines(code: CodeType, name: str) -> set[int]:
    found, line = set(), code.co_firstlineno
    starts = dict(dis.findlinestarts(code))
    for instruction in dis.get_instructions(code):
        line = starts.get(instruction.offset) or line
        if instruction.opname in _STORES:
            names = instruction.argval if isinstance(instruction.argval, tuple) else (instruction.argval,)
            if name in (names[:1] if instruction.opname.endswith("LOAD_FAST") else names):
                found.add(line)
    return found
