"""Makes IPython run each cell on the ranks: `%accelerate cells on`."""

from __future__ import annotations

import ast
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from notebook_accel.errors import NotebookAccelError
from notebook_accel.launch.show import front_end
from notebook_accel.notebook.cells import cell_magic
from notebook_accel.notebook.cells import session as sessions
from notebook_accel.notebook.cells.cell_magic import CellCode
from notebook_accel.notebook.cells.cell_options import CellArguments
from notebook_accel.notebook.cells.every_cell import cell_parts
from notebook_accel.notebook.cells.every_cell.cell_parts import CellPart
from notebook_accel.notebook.cells.every_cell.rank_names import RankNames
from notebook_accel.notebook.cells.persistent import PersistentRanks
from notebook_accel.notebook.cells.rank_selection import parse_ranks
from notebook_accel.notebook.ipython import tracebacks
from notebook_accel.notebook.ipython.cell_numbers import number_of_current
from notebook_accel.notebook.ipython.here_cells import runs_here

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

_CALL = "__import__({module!r}, fromlist=['run']).run({key})"
_mode: EveryCell | None = None


@dataclass(frozen=True)
class CellsOptions:
    """The options of `%accelerate cells on` that hold for each cell."""

    ranks: str | None = None
    show: str | None = None

    def given(self) -> list[tuple[str, str]]:
        """The options that are set, each with its text."""
        return [(name, text) for name, text in (("--ranks", self.ranks), ("--show", self.show)) if text is not None]

    def __str__(self) -> str:
        return "".join(f" {name} {text}" for name, text in self.given())


class _Waiting(NamedTuple):
    """A part of the current cell that has not run yet, and the cell's own text."""

    part: CellPart | NotebookAccelError
    text: str
    keeps_values: bool


class EveryCell:
    """Cells run on the ranks from `turn_on` to `turn_off`. IPython calls `visit` with the code of each cell."""

    def __init__(self, shell: InteractiveShell) -> None:
        self.shell: Any = shell  # its type stubs lack many of its methods
        self.options: CellsOptions | None = None
        """`None` while cells run in the kernel."""
        self._names = RankNames(shell, self._ranks_to_ask)
        self._waiting: dict[int, _Waiting] = {}
        self._keys = itertools.count()
        self._begun: Any = None
        """IPython's information on the cell whose code it is about to pass to `visit`."""
        self._outer: bool | None = None
        """Whether the code that the current cell has IPython run, as `%rerun` does, runs on the ranks too."""
        self._events = {"pre_run_cell": self._begin, "post_run_cell": self._end}

    def turn_on(self, size: int | None, options: CellsOptions, *, keep: bool = False) -> PersistentRanks:
        """Starts the ranks if need be; the next cell runs on them.

        Args:
            size: The number of ranks; `None` for the number that there is.
            options: The options that hold for each cell.
            keep: Whether ranks of another number get the variables of rank 0.

        Raises:
            ConfigurationError: An option can't work; nothing has changed.
            LaunchError: The ranks can't be started; nothing has changed.
        """
        if size is not None:  # before ranks of another number are lost
            for option, text in options.given():
                parse_ranks(option, text, size)
        ranks = sessions.current(self.shell).ready(size, keep=keep)
        members = _arguments(options).members(ranks)
        ranks.ensure_ready(members)
        self._names.prepare(ranks, members)
        if self.options is None:
            self.shell.ast_transformers.append(self)
            for name, function in self._events.items():
                self.shell.events.register(name, function)
            self._names.install()
        self.options = options
        return ranks

    def turn_off(self) -> None:
        """Runs the next cell in the kernel."""
        if self.options is None:
            return
        self.options = self._outer = None
        self.shell.ast_transformers.remove(self)
        for name, function in self._events.items():
            self.shell.events.unregister(name, function)
        self._names.uninstall()

    def describe(self) -> str:
        """Where cells run, in a sentence without its full stop."""
        if self.options is None:
            return "Cells run in the kernel"
        given = f", with{self.options}" if str(self.options) else ""
        ranks = sessions.current(self.shell).ranks
        if ranks is None:
            return f"Each cell runs on the ranks{given}; the next cell starts them"
        return f"Each cell runs on the {_count(ranks.size)} of %%accelerate ({ranks.plan.device_text}){given}"

    # What IPython calls

    def _begin(self, info: Any) -> None:
        """A cell begins, but not one that a front end runs unseen."""
        self._begun = info

    def _end(self, result: Any) -> None:
        self._begun = None  # a cell may end before `visit` is called
        if result.info.store_history:
            self._outer = None

    def visit(self, tree: ast.Module) -> ast.Module:
        """Replaces the code of a cell that belongs on the ranks."""
        info, self._begun = self._begun, None
        if info is None or not self._belongs_on_ranks(info):
            return tree
        source = cell_magic.python_of(self.shell, info.raw_cell)
        try:
            parts: list[CellPart | NotebookAccelError] = [*cell_parts.split(source)]
        except SyntaxError:  # IPython has other transformers of its own
            return tree
        except NotebookAccelError as error:
            parts = [error]
        body: list[ast.stmt] = []
        for part in parts:
            if isinstance(part, CellPart) and part.in_kernel:
                body += part.statements
                continue
            key = next(self._keys)
            self._waiting[key] = _Waiting(part, info.raw_cell, info.store_history)
            body += ast.parse(_CALL.format(module=__name__, key=key)).body
        sessions.current(self.shell).ran_on_ranks = True
        return ast.Module(body, [])

    def _belongs_on_ranks(self, info: Any) -> bool:
        if info.store_history:  # a cell of the user's
            self._outer = not runs_here(info.raw_cell)
            self._waiting.clear()
            return self._outer
        return self._outer is True and not runs_here(info.raw_cell)

    # What the replaced code calls

    def run(self, key: int) -> None:
        """Runs a part of the current cell on the ranks."""
        part, text, keeps_values = self._waiting.pop(key)
        if isinstance(part, NotebookAccelError):
            raise part
        number = number_of_current(self.shell)
        filename = _cache(self.shell, text, number)
        self._note_new_ranks()
        code = CellCode(part.source, text, filename, number if keeps_values else 0)
        cell_magic.run_code(self.shell, _arguments(self.options or CellsOptions()), code)

    def _note_new_ranks(self) -> None:
        """Starts ranks if none are left, and says that the names are gone."""
        session = sessions.current(self.shell)
        if session.ranks is None:
            ranks = session.ready()
            lost = f"; the variables of the old ranks are gone: {session.lost}" if session.lost else ""
            front_end.current.notice(f"cells run on {_count(ranks.size)}, which are new{lost}")

    def _ranks_to_ask(self) -> tuple[PersistentRanks, list[int]] | None:
        """The ranks whose names the Tab key completes; `None` if there are none."""
        ranks = sessions.current(self.shell).ranks
        if ranks is None or self.options is None:
            return None
        try:
            return ranks, list(_arguments(self.options).members(ranks))
        except NotebookAccelError:  # their number has changed
            return None


def run(key: int) -> None:
    """Runs a part of the current cell on the ranks; raises what `%%accelerate` does."""
    assert _mode is not None
    try:
        _mode.run(key)
    except NotebookAccelError as error:
        tracebacks.shorten(error)
        raise


def current(shell: InteractiveShell) -> EveryCell:
    """The mode of this notebook."""
    global _mode  # a kernel belongs to one notebook
    if _mode is None:
        _mode = EveryCell(shell)
    return _mode


def existing() -> EveryCell | None:
    """The mode of this notebook; `None` if it was never turned on."""
    return _mode


def ranks_of_cells() -> int:
    """The number of ranks that each cell runs on; 0 while cells run in the kernel, and -1 if the next cell starts them.

    The control in the toolbar of JupyterLab and Notebook asks for it.
    """
    if _mode is None or _mode.options is None:
        return 0
    ranks = sessions.current(_mode.shell).ranks
    return -1 if ranks is None else ranks.size


def _arguments(options: CellsOptions) -> CellArguments:
    return CellArguments(None, options.ranks, options.show, None, block=True)


def _cache(shell: Any, text: str, number: int) -> str:
    """Makes tracebacks show the user's own text, under the name by which IPython knows the cell."""
    name: str = shell.compile.cache(text, number, raw_code=text)
    return name


def _count(size: int) -> str:
    return f"{size} rank{'' if size == 1 else 's'}"
