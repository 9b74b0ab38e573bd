"""`%accelerate`: shows and changes the settings of a notebook's launches."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from notebook_accel.errors import ConfigurationError, NotebookAccelError
from notebook_accel.notebook.cells.cell_options import OPTIONS
from notebook_accel.notebook.ipython import completion, magic_options, tracebacks
from notebook_accel.notebook.magics import configure, subcommands

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

NAME = "accelerate"
_PAGE = """Shows or changes the settings for launches from this notebook.

    %accelerate                        shows the devices, the settings with their sources, and a preview of a launch
    %accelerate -n 2 --device cpu      sets options for notebook_launcher(), %%accelerate, and Accelerator() on ranks
    %accelerate --reset -n 4           discards earlier settings first
    %accelerate --gpus 0,2 --save      also writes them to the configuration file, for every notebook and script

Arguments of notebook_launcher() override the settings made here, which override environment variables, which
override the configuration file. Settings that cannot work are refused at once, and then nothing is changed.

Options
{options}

Subcommands: %accelerate NAME ...
{subcommands}
"""


_CELL_PAGE = """Runs a cell on every rank of a persistent group.

    %%accelerate -n 2
    model = accelerator.prepare(Net())       the ranks keep their variables from cell to cell
    model(data).mean()                       data is sent once, if the notebook has it and the ranks don't

The first such cell starts the ranks. Each has `rank`, `world_size` and `device`, and a process group, so that plain
torch.distributed and Accelerator() work at once. The value of the last expression is shown by rank, equal values once.
An interrupt or an error ends the cell on all ranks, but the ranks keep running and keep their variables.

Options
{options}
"""


def register(shell: InteractiveShell) -> None:
    """Registers the magics and their completion with a shell."""

    def accelerate(line: str) -> Any:
        return run(shell, line)

    accelerate.__doc__ = page()

    def accelerate_cell(line: str, body: str) -> Any:
        return run_cell(shell, line, body)

    accelerate_cell.__doc__ = cell_page()
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
    try:
        first = line.split(maxsplit=1)[:1]
        if first and not first[0].startswith("-"):
            subcommand = subcommands.get(first[0])
            words = line.split(maxsplit=2) if subcommand.takes_code else _words(line)
            return subcommand.load()(shell, words[1:])
        return configure.run(_words(line))
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


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError as error:
        raise ConfigurationError(f"%{NAME} {line}: {error}") from None


def complete(shell: InteractiveShell, words: list[str], prefix: str) -> list[str]:
    """Completions at the cursor of a line."""
    if words and not words[0].startswith("-"):
        return subcommands.complete(shell, words, prefix)
    found = magic_options.complete(configure.OPTIONS, words, prefix)
    return found if words else [*found, *(name for name in subcommands.names() if name.startswith(prefix))]


def complete_cell(shell: InteractiveShell, words: list[str], prefix: str) -> list[str]:
    """Completions at the cursor of a cell's first line."""
    del shell
    return magic_options.complete(OPTIONS, words, prefix)


COMPLETERS = {f"%{NAME}": complete, f"%%{NAME}": complete_cell}
"""The completer for each first word of a line."""


def cell_page() -> str:
    """The help that `%%accelerate?` shows."""
    return _CELL_PAGE.format(options=magic_options.describe(OPTIONS))


def page() -> str:
    """The help that `%accelerate?` shows."""
    return _PAGE.format(options=magic_options.describe(configure.OPTIONS), subcommands=subcommands.describe())
