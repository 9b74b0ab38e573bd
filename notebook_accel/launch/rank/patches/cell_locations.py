"""Patches warnings and pdb, which name a cell as the user knows it, `In[3]`, instead of by its temporary file."""

from __future__ import annotations

import functools
import linecache
import warnings
from typing import Any

from notebook_accel.launch.rank.patches.on_import import when_imported
from notebook_accel.launch.wire import cell_names


def install() -> None:
    """Patches both, pdb once it is imported."""
    if not hasattr(warnings.formatwarning, "__wrapped__"):
        warnings.formatwarning = _patched_format(warnings.formatwarning)
    when_imported({"bdb": _patch_bdb})


def _patched_format(original: Any) -> Any:
    @functools.wraps(original)
    def formatwarning(message: Any, category: Any, filename: str, lineno: int, line: str | None = None) -> str:
        line = linecache.getline(filename, lineno) if line is None else line
        return str(original(message, category, cell_names.name_of(filename), lineno, line))

    return formatwarning


def _patch_bdb(module: Any) -> None:
    original = module.Bdb.format_stack_entry
    if hasattr(original, "__wrapped__"):
        return

    @functools.wraps(original)
    def format_stack_entry(self: Any, frame_lineno: Any, *args: Any, **kwargs: Any) -> str:
        filename = self.canonic(frame_lineno[0].f_code.co_filename)
        entry: str = original(self, frame_lineno, *args, **kwargs)
        return entry.replace(filename, cell_names.name_of(filename), 1)

    module.Bdb.format_stack_entry = format_stack_entry
