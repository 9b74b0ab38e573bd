"""`%accelerate` and `%%accelerate`: registers the magics, and runs, completes and explains their lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from notebook_accel.errors import NotebookAccelError
from notebook_accel.notebook.ipython import completion, tracebacks

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

NAME = "accelerate"


def register(shell: InteractiveShell) -> None:
    """Registers the magics and their completion with a shell."""

    def accelerate(line: str) -> Any:
        """Shows or changes the settings for launches from this notebook."""
        return run(shell, line)

    def accelerate_cell(line: str, body: str) -> Any:
        """Runs a cell on every rank of a persistent group."""
        return run_cell(shell, line, body)

    # IPython calls these for its help, so that pages are made when they are shown.
    accelerate.getdoc = page  # type: ignore[attr-defined]
    accelerate_cell.getdoc = cell_page  # type: ignore[attr-defined]
    ipython: Any = shell  # its type stubs lack many of its methods
    ipython.register_magic_function(accelerate, "line", NAME)
    ipython.register_magic_function(accelerate_cell, "cell", NAME)
    completion.register(shell, COMPLETERS)


def unregister(shell: InteractiveShell) -> None:
    """Removes the magics and their completion."""
    for kind in ("line", "cell"):
        shell.magics_manager.magics[kind].pop(NAME, None)
    completion.unregister(shell, COMPLETERS)


def run(shell: InteractiveShell, line: str) -> Any:
    """Runs a line `%accelerate …`: a subcommand, or options.

    Raises:
        NotebookAccelError: The line has an unknown word or option, or a value that cannot work.
    """
    from notebook_accel.notebook.ipython import magic_commands
    from notebook_accel.notebook.magics.command import command

    try:
        return magic_commands.run(command, f"%{NAME}", line, shell)
    except NotebookAccelError as error:
        tracebacks.shorten(error)  # the user can see the line
        raise


def run_cell(shell: InteractiveShell, line: str, body: str) -> Any:
    """Runs a cell `%%accelerate …`.

    Raises:
        NotebookAccelError: The cell can't run, or failed on a rank.
    """
    from notebook_accel.notebook.cells import cell_magic as magic

    try:
        return magic.accelerate(shell, line, body)
    except NotebookAccelError as error:
        tracebacks.shorten(error)
        raise


def complete(shell: InteractiveShell, words: list[str], prefix: str) -> list[str]:
    """Completions at the cursor of a line."""
    from notebook_accel.notebook.ipython import magic_commands
    from notebook_accel.notebook.magics.command import command

    return magic_commands.complete(command, shell, words, prefix)


def complete_cell(shell: InteractiveShell, words: list[str], prefix: str) -> list[str]:
    """Completions at the cursor of a cell's first line."""
    from notebook_accel.notebook.cells.cell_options import command
    from notebook_accel.notebook.ipython import magic_commands

    return magic_commands.complete(command, shell, words, prefix)


COMPLETERS = {f"%{NAME}": complete, f"%%{NAME}": complete_cell}
"""The completer for each first word of a line."""


def page() -> str:
    """The help that `%accelerate?` shows."""
    from notebook_accel.notebook.ipython import magic_commands
    from notebook_accel.notebook.magics.command import command

    return magic_commands.page(command, f"%{NAME}")


def cell_page() -> str:
    """The help that `%%accelerate?` shows."""
    from notebook_accel.notebook.cells.cell_options import command
    from notebook_accel.notebook.ipython import magic_commands

    return magic_commands.page(command, f"%%{NAME}")
