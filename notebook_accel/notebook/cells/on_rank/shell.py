"""The IPython shell in which a rank runs cells. It has magics, `await` and displays, but no history or screen."""

from __future__ import annotations

import linecache
import sys
import warnings
from collections.abc import Mapping
from typing import Any

from IPython.core.compilerop import CachingCompiler
from IPython.core.displayhook import DisplayHook
from traitlets import Type

from notebook_accel.launch.rank.display_shell import DisplayShell, configuration
from notebook_accel.launch.wire import cell_names
from notebook_accel.notebook.cells.cell_messages import Cell


class _Compiler(CachingCompiler):
    """Knows cells by the notebook's names for them."""

    cell: Cell | None = None

    def cache(self, transformed_code: str, number: int = 0, raw_code: str | None = None) -> str:
        cell = self.cell
        if cell is None:  # run by `%run` or by a magic that runs cells itself
            return super().cache(transformed_code, number, raw_code)
        self.cell = None
        # Without a time stamp, the entry is never checked against the disk.
        entry = (len(cell.text), None, cell.text.splitlines(keepends=True), cell.filename)
        linecache.cache[cell.filename] = entry
        cell_names.add({cell.filename: cell.place})
        return cell.filename


class _Hook(DisplayHook):
    """Keeps the value of the last expression in all the formats that will be shown."""

    def __call__(self, result: Any = None) -> None:
        if result is None:
            return
        shell = self.shell
        assert isinstance(shell, RankShell)
        if self.exec_result is not None:
            self.exec_result.result = result
        self._store(shell, result)
        shell.value = result
        shell.bundle, shell.metadata = shell.formatter.format(result)

    def _store(self, shell: RankShell, result: Any) -> None:
        if not shell.keeps_values:
            self._ = result
            shell.push({"_": result}, interactive=False)  # type: ignore[no-untyped-call]
            return
        self.do_full_cache = False  # IPython would store it under a number of its own
        self.update_user_ns(result)  # type: ignore[no-untyped-call]
        values: dict[int, Any] = shell.user_ns["_oh"]
        if result is not values:
            values[shell.execution_count] = result
            shell.push({f"_{shell.execution_count}": result}, interactive=False)  # type: ignore[no-untyped-call]
        for oldest in list(values)[: -self.cache_size]:
            del values[oldest]
            shell.user_ns.pop(f"_{oldest}", None)

    def flush(self) -> None:
        """Does nothing: there is no cache of values."""


class RankShell(DisplayShell):
    """A shell that raises a cell's errors to the caller instead of printing them."""

    compiler_class = Type(_Compiler)
    displayhook_class = Type(_Hook)
    keeps_values = False
    """Whether the value of the cell is kept in `Out`."""
    value: Any = None
    bundle: Mapping[str, Any]
    metadata: Mapping[str, Any]

    def run(self, cell: Cell, rank: int) -> None:
        """Runs a cell, and stores the value of its last expression in `value` and `bundle`.

        Raises:
            BaseException: The cell raised it.
        """
        self.value, self.bundle, self.metadata = None, {}, {}
        self.is_shown = is_shown = rank in cell.shown
        self.shows_alone = len(cell.shown) == 1
        types = self.formatter.format_types if is_shown else ["text/plain"]
        if self.formatter.active_types != types:  # setting them takes a tenth of the time of an empty cell
            self.formatter.active_types = types
        self._number(cell)
        assert isinstance(self.compile, _Compiler)
        self.compile.cell = cell
        result: Any = self.run_cell(cell.source, store_history=False)  # type: ignore[no-untyped-call]
        error = result.error_before_exec or result.error_in_exec
        if issubclass(type(error), SystemExit) and not error.code:
            return  # a normal end, as in a script
        if error is not None:
            raise error
        if cell.text.rstrip().endswith(";"):
            self.value, self.bundle = None, {}

    def _number(self, cell: Cell) -> None:
        """Keeps the cell under its number in the notebook, as `In[3]`, and its value as `Out[3]`."""
        self.keeps_values = cell.number > 0
        if self.keeps_values:
            self.execution_count = cell.number
            texts: list[str] = self.user_ns["In"]
            texts += [""] * (cell.number + 1 - len(texts))
            texts[cell.number] = cell.text

    def transform_cell(self, raw_cell: str) -> str:
        """Returns a notebook's cell unchanged, since the notebook has already transformed it."""
        assert isinstance(self.compile, _Compiler)
        if self.compile.cell is not None:
            return raw_cell
        return str(super().transform_cell(raw_cell))  # type: ignore[no-untyped-call]

    def ask_exit(self) -> None:
        """Makes `exit()` and `quit()` end the cell."""
        sys.stdout.write("The ranks keep running; `%accelerate stop` ends them.\n")
        raise SystemExit

    def showtraceback(self, *args: Any, **options: Any) -> None:
        """The notebook shows it."""

    def showsyntaxerror(self, *args: Any, **options: Any) -> None:
        """The notebook shows it."""

    def _showtraceback(self, *args: Any, **options: Any) -> None:
        pass


def _show_page(shell: RankShell, data: Any, start: int = 0, screen_lines: int = 0) -> None:
    """Shows the help for `name?` below the cell, once for all ranks."""
    del start, screen_lines
    text = data["text/plain"] if isinstance(data, Mapping) else str(data)
    shell.display_pub.publish({"text/plain": text})


def start(namespace: dict[str, Any]) -> RankShell:
    """Creates the shell of this process, which runs cells in the given namespace."""
    shell = RankShell.instance(config=configuration(), user_module=sys.modules["__main__"], user_ns=namespace)
    shell.set_hook("show_in_pager", _show_page)  # type: ignore[no-untyped-call]
    warnings.filterwarnings("ignore", "To exit: use", UserWarning)  # which follows a SystemExit
    # The fork server imported it before there was a shell, so it could not attach itself to one.
    inline = sys.modules.get("matplotlib_inline.backend_inline")
    if inline is not None:
        inline._enable_matplotlib_integration()
    return shell
