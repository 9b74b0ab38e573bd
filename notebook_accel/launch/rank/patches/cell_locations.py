"""Patches warnings, tracebacks and pdb to name a cell as the user knows it, `In[3]`, instead of its temporary file."""

from __future__ import annotations

import linecache
import sys
import threading
import traceback
import warnings
from typing import Any

from notebook_accel.launch.wire import cell_names
from notebook_accel.launch.wire.mirrored.on_import import replace, when_imported

_RUN_BY_GARBAGE_COLLECTION = ("_weakrefset", "weakref")
"""Modules whose functions Python calls when objects die, which can be right after `breakpoint()`: pdb would stop there
instead of in the user's function."""


def install() -> None:
    """Patches all of them, pdb once it is imported."""
    replace(warnings, "formatwarning", _patched_format)
    replace(traceback.StackSummary, "format", _patched_stack_format)
    threading.excepthook = _print_of_thread
    when_imported({"bdb": _patch_bdb})


def _patched_format(original: Any) -> Any:
    def formatwarning(message: Any, category: Any, filename: str, lineno: int, line: str | None = None) -> str:
        line = linecache.getline(filename, lineno) if line is None else line
        return str(original(message, category, cell_names.name_of(filename), lineno, line))

    return formatwarning


def _patched_stack_format(original: Any) -> Any:
    """`StackSummary.format`, through which `print_exc`, `format_exc`, `print_stack` and `logging` go."""

    def format(self: traceback.StackSummary, **options: Any) -> list[str]:
        filenames = [frame.filename for frame in self]
        try:
            for frame in self:
                name = cell_names.name_of(frame.filename)
                if name != frame.filename:
                    frame.line  # noqa: B018  # reads the source, which has the file's name
                    frame.filename = name
            return list(original(self, **options))
        finally:
            for frame, filename in zip(self, filenames, strict=True):
                frame.filename = filename

    return format


def _print_of_thread(raised: threading.ExceptHookArgs) -> None:
    """Prints the exception that ends a thread, in the format of Python's own hook, which bypasses `StackSummary`."""
    if raised.exc_type is SystemExit or sys.stderr is None:
        return
    name = threading.get_ident() if raised.thread is None else raised.thread.name
    lines = traceback.format_exception(raised.exc_type, raised.exc_value, raised.exc_traceback)
    sys.stderr.write("".join([f"Exception in thread {name}:\n", *lines]))


def _patch_bdb(module: Any) -> None:
    replace(module.Bdb, "format_stack_entry", _patched_entry)
    replace(module.Bdb, "__init__", _patched_bdb)


def _patched_entry(original: Any) -> Any:
    def format_stack_entry(self: Any, frame_lineno: Any, *args: Any, **kwargs: Any) -> str:
        filename = self.canonic(frame_lineno[0].f_code.co_filename)
        entry: str = original(self, frame_lineno, *args, **kwargs)
        return entry.replace(filename, cell_names.name_of(filename), 1)

    return format_stack_entry


def _patched_bdb(original: Any) -> Any:
    def init(self: Any, skip: Any = None, *args: Any, **kwargs: Any) -> None:
        original(self, {*(skip or ()), *_RUN_BY_GARBAGE_COLLECTION}, *args, **kwargs)

    return init
