"""`%accelerate`: shows and sets, in the notebook, how its launches run."""

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
_PAGE = """Shows or sets how launches from this notebook run.

    %accelerate                        the devices, the settings and where each came from, and what a launch would do
    %accelerate -n 2 --device cpu      sets them: for notebook_launcher(), %%accelerate, and Accelerator() on the ranks
    %accelerate --reset -n 4           forgets what was set before
    %accelerate --gpus 0,2 --save      writes them to the configuration file too, for every notebook and script

An argument of notebook_launcher() comes before what is set here; that comes before environment variables, and those
before the configuration file. What cannot work is refused at once, and then nothing is changed.

Options
{options}

Subcommands: %accelerate NAME ...
{subcommands}
"""


_CELL_PAGE = """Runs a cell on every rank of a group that lives on.

    %%accelerate -n 2
    model = accelerator.prepare(Net())       names live on from cell to cell, on the ranks
    model(data).mean()                       data is sent along once, if the notebook has it and the ranks don't

The first such cell starts the ranks. Each has `rank`, `world_size` and `device`, and a process group, so that plain
torch.distributed and Accelerator() work at once. The value of a last expression is shown by rank, equal ones once.
An interrupt, or an error, ends the cell on all ranks, and leaves them and their names as they are.

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
    ipython: Any = shell  # its types know little of its methods
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
        NotebookAccelError: It has a word or an option too many, or a value that cannot work.
    """
    try:
        first = line.split(maxsplit=1)[:1]
        if first and not first[0].startswith("-"):
            subcommand = subcommands.get(first[0])
            words = line.split(maxsplit=2) if subcommand.takes_code else _words(line)
            return subcommand.load()(shell, words[1:])
        return configure.run(_words(line))
    except NotebookAccelError as error:
        tracebacks.shorten(error)  # the line is before the user's eyes
        raise


def run_cell(shell: InteractiveShell, line: str, body: str) -> Any:
    """Runs a cell `%%accelerate …`.

    Raises:
        NotebookAccelError: It can't run, or has failed on a rank.
    """
    from notebook_accel.notebook.cells import run as magic

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
    """What may stand at the cursor of a line."""
    if words and not words[0].startswith("-"):
        return subcommands.complete(shell, words, prefix)
    found = magic_options.complete(configure.OPTIONS, words, prefix)
    return found if words else [*found, *(name for name in subcommands.names() if name.startswith(prefix))]


def complete_cell(shell: InteractiveShell, words: list[str], prefix: str) -> list[str]:
    """What may stand at the cursor of a cell's first line."""
    del shell
    return magic_options.complete(OPTIONS, words, prefix)


COMPLETERS = {f"%{NAME}": complete, f"%%{NAME}": complete_cell}
"""By the word that a line begins with."""


def cell_page() -> str:
    """What `%%accelerate?` shows."""
    return _CELL_PAGE.format(options=magic_options.describe(OPTIONS))


def page() -> str:
    """What `%accelerate?` shows."""
    return _PAGE.format(options=magic_options.describe(configure.OPTIONS), subcommands=subcommands.describe())
