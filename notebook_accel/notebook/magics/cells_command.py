"""`%accelerate cells`: runs each cell on the ranks, or in the kernel again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from notebook_accel.errors import ConfigurationError
from notebook_accel.launch.show import front_end
from notebook_accel.notebook.cells import session as sessions
from notebook_accel.notebook.cells.every_cell import mode
from notebook_accel.notebook.cells.every_cell.mode import CellsOptions
from notebook_accel.notebook.ipython.magic_commands import MagicCommand

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

_ONE_CELL = "{option} applies to a single cell: begin the cell with %%accelerate {option}"


@click.command("cells", cls=MagicCommand)
@click.argument("switch", required=False, type=click.Choice(["on", "off"]), metavar="[on|off]")
@click.option(
    "-n", "--num-processes", "size", metavar="N", help="The number of ranks; another number starts new ranks."
)
@click.option("--keep", is_flag=True, help="With -n: the new ranks get the variables of rank 0.")
@click.option("--ranks", metavar="RANKS", help="Only these ranks run the cells: 0,2-3.")
@click.option("--show", metavar="RANKS", help="Ranks whose figures and tables are shown; by default the first.")
@click.option("--as", "name", metavar="NAME", hidden=True)
@click.option("--no-block", is_flag=True, hidden=True)
@click.pass_obj
def cells(
    shell: InteractiveShell,
    switch: str | None,
    size: str | None,
    keep: bool,
    ranks: str | None,
    show: str | None,
    name: str | None,
    no_block: bool,
) -> None:
    """Runs each cell on every rank, until `off`; without an argument, shows where cells run."""
    if name is not None or no_block:
        raise ConfigurationError(_ONE_CELL.format(option="--no-block" if no_block else f"--as {name}"))
    if switch == "on":
        _turn_on(shell, size, CellsOptions(ranks, show), keep=keep)
        return
    if size is not None or keep or ranks is not None or show is not None:
        raise ConfigurationError("%accelerate cells takes options only with on, as in %accelerate cells on -n 2")
    if switch == "off":
        _turn_off(shell)
    else:
        _write(mode.current(shell).describe())


def _turn_on(shell: InteractiveShell, size: str | None, options: CellsOptions, *, keep: bool) -> None:
    if size is not None and not (size.isdecimal() and int(size)):
        raise ConfigurationError(f"-n {size}: expected a number of ranks, such as -n 2")
    ranks = sessions.current(shell).ranks
    if keep and (size is None or ranks is None or ranks.size == int(size)):
        there = "no ranks are running" if ranks is None else f"{ranks.size} ranks are running"
        raise ConfigurationError(
            f"--keep is for a change of the number of ranks with -n, but {there}. To replace ranks by as many others, "
            "run `%accelerate restart --keep`"
        )
    found = mode.current(shell)
    found.turn_on(None if size is None else int(size), options, keep=keep)
    _write(
        f"{found.describe()}. %%here runs a cell in the kernel, and %%rank 0 on some ranks; "
        "`%accelerate cells off` ends this"
    )


def _turn_off(shell: InteractiveShell) -> None:
    found = mode.current(shell)
    was_on = found.options is not None
    found.turn_off()
    ranks = sessions.current(shell).ranks
    kept = (
        "; the ranks keep their variables: `%accelerate pull NAME` copies one to the notebook, and "
        "`%accelerate stop` ends the ranks"
        if was_on and ranks is not None
        else ""
    )
    _write(f"{found.describe()}{kept}")


def _write(text: str) -> None:
    front_end.current.write("stdout", text + "\n")
