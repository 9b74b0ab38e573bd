"""The cell that is running: its number, its text, and the numbers of others by their file names in tracebacks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


def numbers(shell: InteractiveShell) -> Mapping[str, int]:
    """The numbers of cells by their file names; grows as cells run."""
    compiler: Any = shell.compile
    known: Mapping[str, int] | None = getattr(compiler, "_filename_map", None)
    return _track(shell) if known is None else known


_text = ""


def note_text(info: Any) -> None:
    """Notes the text of a cell; IPython calls this before the cell runs."""
    global _text  # a kernel runs one cell at a time
    _text = info.raw_cell


def as_typed(text: str) -> str:
    """The text of the cell that is running if it is this text, up to blanks at the end, which a cell magic doesn't get.

    IPython derives the cell's file name from it, and JupyterLab's debugger the file of its breakpoints.
    """
    return _text if _text.rstrip() == text.rstrip() else text


def number_of_current(shell: Any) -> int:
    """The number of the cell that is running; `execution_count` may already be the number of the next cell."""
    return len(shell.history_manager.input_hist_raw) - 1


def _track(shell: Any) -> Mapping[str, int]:
    """The same for IPython 7, whose compiler does not keep the numbers."""
    compiler, history = shell.compile, shell.history_manager
    earlier = zip(history.input_hist_raw, history.input_hist_parsed)  # noqa: B905  # one may lag behind
    found = {compiler.get_code_name(raw, code, number): number for number, (raw, code) in enumerate(earlier)}
    cache = compiler.cache

    def cache_and_number(code: str, number: int = 0, raw_code: str | None = None) -> str:
        name: str = cache(code, number, raw_code)
        found[name] = number
        return name

    compiler.cache = cache_and_number
    return found
