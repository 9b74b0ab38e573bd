"""Splits a cell into parts that run one after the other: on the ranks, or in the kernel."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from notebook_accel.errors import ConfigurationError

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
        name in _KERNEL_MAGICS or (name in _EXTENSION_MAGICS and argument.strip() == _EXTENSION)
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
