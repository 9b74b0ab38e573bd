"""`%accelerate`, `%%accelerate` and `%%rank`: registers the magics, and runs, completes and explains their lines."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from notebook_accel.errors import ConfigurationError, NotebookAccelError, RankError
from notebook_accel.launch.show import console
from notebook_accel.notebook.ipython import completion, here_cells, tracebacks

if TYPE_CHECKING:
    import click
    from IPython.core.interactiveshell import InteractiveShell

NAME = "accelerate"
_LINE, _CELL = f"%{NAME}", f"%%{NAME}"
_RANK = "rank"
_EVERY_CELL = "notebook_accel.notebook.cells.every_cell"
_ENDED = (
    "the ranks that failed have ended, so this is the notebook's own frame. To look into a rank, call breakpoint() in "
    "the function, or call the function in a cell with %%accelerate, whose ranks keep running, and then run %debug"
)


def register(shell: InteractiveShell) -> None:
    """Registers the magics and their completion with a shell."""

    def accelerate(line: str) -> Any:
        """Shows or changes the settings for launches from this notebook."""
        return run(shell, line)

    def accelerate_cell(line: str, body: str) -> Any:
        """Runs a cell on every rank of a persistent group."""
        return run_cell(shell, line, body)

    def rank_cell(line: str, body: str) -> Any:
        """Runs a cell on some of the ranks: `%%rank 0`, or `%%rank 0,2-3`; then, the options of `%%accelerate`."""
        return run_cell(shell, _rank_options(line), body, f"%%{_RANK} {line}")

    # IPython's help calls these, so that a page is made when it is shown.
    accelerate.getdoc = partial(page, _LINE)  # type: ignore[attr-defined]
    accelerate_cell.getdoc = partial(page, _CELL)  # type: ignore[attr-defined]
    ipython: Any = shell  # its type stubs lack many of its methods
    ipython.register_magic_function(accelerate, "line", NAME)
    ipython.register_magic_function(accelerate_cell, "cell", NAME)
    ipython.register_magic_function(rank_cell, "cell", _RANK)
    ipython.debugger = partial(_debugger, shell)
    here_cells.register(shell)
    completion.register(shell, COMPLETERS)


def unregister(shell: InteractiveShell) -> None:
    """Removes the magics and their completion."""
    for kind in ("line", "cell"):
        shell.magics_manager.magics[kind].pop(NAME, None)
    shell.magics_manager.magics["cell"].pop(_RANK, None)
    vars(shell).pop("debugger", None)
    here_cells.unregister(shell)
    if _EVERY_CELL in sys.modules:
        sys.modules[_EVERY_CELL].current(shell).turn_off()
    completion.unregister(shell, COMPLETERS)


# What is used only when a magic is used is imported then, among it click.


def _command(magic: str) -> click.Command:
    if magic == _CELL:
        from notebook_accel.notebook.cells import cell_options

        return cell_options.command
    from notebook_accel.notebook.magics import command

    return command.command


def run(shell: InteractiveShell, line: str) -> Any:
    """Runs a line `%accelerate …`: a subcommand, or options.

    Raises:
        NotebookAccelError: The line has an unknown word or option, or a value that cannot work.
    """
    from notebook_accel.notebook.ipython import magic_commands

    try:
        return magic_commands.run(_command(_LINE), _LINE, line, shell)
    except NotebookAccelError as error:
        tracebacks.shorten(error)  # the user can see the line
        raise


def _debugger(shell: InteractiveShell, force: bool = False) -> None:
    """What `%debug` opens: for an error of a cell on the ranks, `%accelerate debug`."""
    error = getattr(sys, "last_value", None)
    if isinstance(error, RankError) and error.failures:
        from notebook_accel.notebook.cells import session as sessions

        ranks = sessions.current(shell).ranks
        if ranks is not None and ranks.error is error:
            run(shell, "debug")
            return
        console.current.notice(_ENDED)
    type(shell).debugger(shell, force)  # type: ignore[no-untyped-call]


def _rank_options(line: str) -> str:
    """The options of `%%accelerate` for the words after `%%rank`."""
    ranks, *others = line.split()[:2] or [""]
    if not ranks or ranks.startswith("-") or (others and not others[0].startswith(("-", "#"))):
        error = ConfigurationError(
            f"%%{_RANK} {line}".rstrip() + ": write the ranks first, as in %%rank 0 or %%rank 0,2-3"
        )
        tracebacks.shorten(error)
        raise error
    return f"--ranks {line}"


def run_cell(shell: InteractiveShell, line: str, body: str, first: str = "") -> Any:
    """Runs a cell `%%accelerate …`, or one with another first line.

    Raises:
        NotebookAccelError: The cell can't run, or failed on a rank.
    """
    from notebook_accel.notebook.cells import cell_magic as magic

    try:
        return magic.accelerate(shell, line, body, first)
    except NotebookAccelError as error:
        tracebacks.shorten(error)
        raise


def complete(magic: str, shell: InteractiveShell, words: list[str], start: str) -> list[str]:
    """Completions at the cursor of a magic's line."""
    from notebook_accel.notebook.ipython import magic_commands

    return magic_commands.complete(_command(magic), shell, words, start)


COMPLETERS = {magic: partial(complete, magic) for magic in (_LINE, _CELL)}
"""The completer for each first word of a line."""


def page(magic: str) -> str:
    """The help that `%accelerate?` and `%%accelerate?` show."""
    from notebook_accel.notebook.ipython import magic_commands

    return magic_commands.page(_command(magic), magic)
