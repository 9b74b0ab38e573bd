"""`%accelerate cells on`: makes IPython run each cell on the ranks, and complete and explain their names.

An AST transformer of IPython replaces the code of a cell by calls, one for each part of it that runs on the ranks; the
kernel runs the other parts. IPython itself stores the cell in its history before the code is replaced, so `In` and
`%rerun` have the user's own text. `ipython/here_cells.py` is `%%here`; `on_rank/names.py` completes names in a rank.
"""

from __future__ import annotations

import ast
import builtins
import itertools
import keyword
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from notebook_accel.errors import ConfigurationError, NotebookAccelError
from notebook_accel.launch.show import console
from notebook_accel.notebook.cells import cell_magic
from notebook_accel.notebook.cells import session as sessions
from notebook_accel.notebook.cells.cell_magic import CellCode
from notebook_accel.notebook.cells.cell_options import CellArguments, parse_ranks
from notebook_accel.notebook.cells.on_rank import names
from notebook_accel.notebook.cells.persistent import PersistentRanks
from notebook_accel.notebook.ipython import tracebacks
from notebook_accel.notebook.ipython.cell_numbers import number_of_current
from notebook_accel.notebook.ipython.here_cells import runs_here
from notebook_accel.rank_spans import counted

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


_CALL = "__import__({module!r}, fromlist=['run']).run({key})"
_mode: EveryCell | None = None
OWN_CELL_MAGICS = ("accelerate", "here", "rank")
"""Cell magics that say themselves where the cell runs."""
_OWN = "accelerate"
_KERNEL_MAGICS = frozenset(
    [
        _OWN,
        # They change the environment, which the ranks share with the kernel.
        *("pip", "conda", "mamba", "micromamba", "uv"),
        # They need the notebook's history, or its front end.
        *("history", "hist", "rerun", "recall", "rep", "save", "notebook", "load", "loadpy", "macro", "pastebin"),
        *("logstart", "logstop", "logon", "logoff", "logstate", "connect_info", "qtconsole"),
    ]
)
"""Line magics that run in the kernel."""
_EXTENSION_MAGICS = ("load_ext", "reload_ext", "unload_ext")
_EXTENSION = "notebook_accel"
_COMPLETE_WITHIN = 0.5
"""Seconds that a rank may take to complete a name. A busy rank gets no request."""
_INSPECT_WITHIN = 2.0
"""Seconds that a rank may take to explain a name."""
_PRIORITY = 500
"""Above those of IPython's own matchers, below that of the magics of this package."""
_IDENTIFIER = "notebook_accel_ranks"
_INSPECT = "object_inspect_mime"


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
        return f"Each cell runs on the {counted(ranks.size)} of %%accelerate ({ranks.plan.device_text}){given}"

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
            parts: list[CellPart | NotebookAccelError] = [*split(source)]
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
            console.current.notice(f"cells run on {counted(ranks.size)}, which are new{lost}")

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


class CellPart(NamedTuple):
    """Consecutive statements of a cell."""

    statements: Sequence[ast.stmt]
    source: str
    """Their source, on the lines that they have in the cell."""
    in_kernel: bool


def split(source: str) -> list[CellPart]:
    """Splits a cell that is valid Python.

    Args:
        source: The cell, with IPython syntax translated to Python.

    Returns:
        Its parts in order; none for a cell without statements.

    Raises:
        ConfigurationError: `%accelerate` is used inside a block or an expression that would run on the ranks.
    """
    body = ast.parse(source).body
    groups = [(in_kernel, list(group)) for in_kernel, group in itertools.groupby(body, _runs_in_kernel)]
    for in_kernel, statements in groups:
        if not in_kernel:
            _check_calls(statements)
    if len(groups) == 1:
        return [CellPart(groups[0][1], source, groups[0][0])]
    parts = [CellPart(statements, _lines_of(source, statements), in_kernel) for in_kernel, statements in groups]
    # Only the last expression of a cell is shown.
    return [*(part._replace(source=f"{part.source}\nNone") for part in parts[:-1]), *parts[-1:]]


def _runs_in_kernel(statement: ast.stmt) -> bool:
    value = statement.value if isinstance(statement, (ast.Expr, ast.Assign)) else None
    method, (name, argument) = _magic(value)
    if method == "run_cell_magic":
        return name in OWN_CELL_MAGICS
    return method == "run_line_magic" and (
        name in _KERNEL_MAGICS
        or (name in _EXTENSION_MAGICS and argument.strip() == _EXTENSION)
        or (name == "debug" and not argument.strip())  # which goes to the rank that has failed
    )


def _magic(node: ast.AST | None) -> tuple[str, tuple[str, str]]:
    """The method, the name of the magic and its first argument, for `get_ipython().run_line_magic('name', 'words')`."""
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("run_line_magic", "run_cell_magic")
        and ast.unparse(node.func.value) == "get_ipython()"
    ):
        words = [word.value for word in node.args if isinstance(word, ast.Constant) and isinstance(word.value, str)]
        if len(words) >= 2:
            return node.func.attr, (words[0], words[1])
    return "", ("", "")


def _check_calls(statements: Sequence[ast.stmt]) -> None:
    for node in _calls(statements):
        method, (name, argument) = _magic(node)
        if method == "run_line_magic" and name == _OWN:
            raise ConfigurationError(
                f"`%{name} {argument}` in line {node.lineno} runs in the kernel, but the statement around it runs on "
                "the ranks. Put it on a line of its own that isn't indented, or begin the cell with %%here"
            )


def _calls(statements: Sequence[ast.stmt]) -> Iterator[ast.Call]:
    return (node for statement in statements for node in ast.walk(statement) if isinstance(node, ast.Call))


def _lines_of(source: str, statements: Sequence[ast.stmt]) -> str:
    """The lines of these statements; the other lines are empty, so that line numbers stay."""
    wanted: set[int] = set()
    for statement in statements:
        decorators: Sequence[ast.expr] = getattr(statement, "decorator_list", ())
        first = min([statement.lineno, *(each.lineno for each in decorators)])
        wanted.update(range(first, (statement.end_lineno or first) + 1))
    lines = re.split("\r\n?|\n", source)  # not splitlines(), to which a form feed in a string ends a line
    return "\n".join(line if number in wanted else "" for number, line in enumerate(lines, 1))


class RankNames:
    """Asks the ranks for completions and help.

    Args:
        shell: The notebook's shell.
        ranks: Returns the ranks, and the numbers of those that may get requests; `None` if there are none.
    """

    def __init__(self, shell: InteractiveShell, ranks: Callable[[], tuple[PersistentRanks, list[int]] | None]) -> None:
        self._shell: Any = shell
        self._ranks = ranks
        self._matcher: Any = None

    def prepare(self, ranks: PersistentRanks, members: Sequence[int]) -> None:
        """Makes the ranks import what completion needs, which takes longer than a completion may."""
        ranks.call_on_ranks(names.complete, "x", 1, members=members)

    def install(self) -> None:
        """Asks the ranks from now on."""
        self._matcher = self._make_matcher()
        self._shell.Completer.custom_matchers.append(self._matcher)
        setattr(self._shell, _INSPECT, self._inspect)  # IPython has no hook for it

    def uninstall(self) -> None:
        """Asks them no longer."""
        self._shell.Completer.custom_matchers.remove(self._matcher)
        delattr(self._shell, _INSPECT)

    def _call(self, seconds: float, function: Callable[..., Any], *args: Any) -> Any:
        found = self._ranks()
        if found is None or threading.current_thread() is not threading.main_thread():
            return None
        ranks, members = found
        return ranks.call_free_rank(function, *args, members=members, seconds=seconds)

    def _complete(self, code: str, at: int) -> names.Completions:
        answer = None if runs_here(code) else self._call(_COMPLETE_WITHIN, names.complete, code, at)
        if answer is None or answer.fragment.startswith("%"):  # the kernel has more magics
            return names.Completions("", [])
        found: names.Completions = answer
        return found

    def _make_matcher(self) -> Any:
        try:
            from IPython.core.completer import SimpleCompletion, context_matcher
        except ImportError:  # before IPython 8.6
            return self._match_word

        def match(context: Any) -> Any:
            at = _offset(context.full_text, context.cursor_line, context.cursor_position)
            fragment, found = self._complete(context.full_text, at)
            is_name = fragment.isidentifier() and not context.full_text[: at - len(fragment)].endswith(".")
            if is_name:  # the kernel's names are offered too, since they are sent when a cell reads them
                found = [(text, kind) for text, kind in found if not self._is_known(text)]
            return {
                "completions": [SimpleCompletion(text, type=kind) for text, kind in found],
                "matched_fragment": fragment,
                "suppress": bool(found) and not is_name,
            }

        return context_matcher(priority=_PRIORITY, identifier=_IDENTIFIER)(match)

    def _is_known(self, name: str) -> bool:
        """Whether the kernel completes this name itself."""
        return name in self._shell.user_ns or hasattr(builtins, name) or keyword.iskeyword(name)

    def _match_word(self, word: str) -> list[str]:
        """The same for older versions: takes the word before the cursor, and returns replacements for it."""
        code = self._shell.Completer.text_until_cursor
        fragment, found = self._complete(code, len(code))
        kept = word[: len(word) - len(fragment)]
        return [kept + text for text, _ in found]

    def _inspect(self, oname: str, detail_level: int = 0, **options: Any) -> Any:
        found = self._call(_INSPECT_WITHIN, names.inspect, oname, detail_level, options)
        return found or getattr(type(self._shell), _INSPECT)(self._shell, oname, detail_level, **options)


def _offset(text: str, line: int, column: int) -> int:
    """The index of a position in a text."""
    return sum(len(each) + 1 for each in text.split("\n")[:line]) + column
