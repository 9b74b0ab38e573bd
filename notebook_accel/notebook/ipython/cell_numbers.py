"""Maps file names in tracebacks to cell numbers."""

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
