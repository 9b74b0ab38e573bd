"""The subcommands of `%accelerate` for the persistent ranks of `%%accelerate`. Each is a row in `command.py`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from notebook_accel.errors import ConfigurationError
from notebook_accel.notebook.cells import every_cell
from notebook_accel.notebook.cells import session as sessions
from notebook_accel.notebook.cells.cell_options import SHOW, SIZE, parse_ranks, parse_size
from notebook_accel.notebook.cells.every_cell import CellsOptions
from notebook_accel.notebook.cells.on_rank import worker
from notebook_accel.notebook.ipython.magic_commands import CodeCommand, MagicCommand, say

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

_ONE_CELL = "{option} applies to a single cell: begin the cell with %%accelerate {option}"


# Completions, for the Tab key. While a line is completed, `context.params` has what stands before the cursor.


def _ranks(context: click.Context, param: click.Parameter, start: str) -> list[str]:
    """The ranks."""
    del param
    found = sessions.current(context.obj).ranks
    return [] if found is None else [name for name in map(str, found.members) if name.startswith(start)]


def _variables_here(context: click.Context, param: click.Parameter, start: str) -> list[str]:
    """Variables of the notebook."""
    del param
    return _others(context, sessions.current(context.obj).variables(), start)


def _variables_there(context: click.Context, param: click.Parameter, start: str) -> list[str]:
    """Variables that the ranks have bound."""
    del param
    found = sessions.current(context.obj).ranks
    own = {} if found is None else dict.fromkeys(name for rank in found.members for name in found.variables.own(rank))
    return _others(context, own, start)


def _others(context: click.Context, known: Iterable[str], start: str) -> list[str]:
    return [name for name in known if name.startswith(start) and name not in (context.params["names"] or ())]


@click.command("stop", cls=MagicCommand)
@click.pass_obj
def stop(shell: InteractiveShell) -> None:
    """Ends the ranks of %%accelerate."""
    session = sessions.current(shell)
    count = session.running().size
    session.stop()
    which = "%%accelerate cell" if every_cell.current(shell).options is None else "cell"
    say(f"{count} ranks have ended; the next {which} starts new ones")


@click.command("restart", cls=MagicCommand)
@click.option("--keep", is_flag=True, help="The new ranks get the variables of rank 0.")
@click.pass_obj
def restart(shell: InteractiveShell, keep: bool) -> None:
    """Ends the ranks, and starts new ones with the current settings."""
    session = sessions.current(shell)
    session.running()
    size = session.restart(keep=keep).size
    if not keep:
        say(f"{size} new ranks; the old ranks' variables are lost")


@click.command("interrupt", cls=MagicCommand)
@click.pass_obj
def interrupt(shell: InteractiveShell) -> None:
    """Interrupts the cell that runs in the background."""
    found = sessions.current(shell).running()
    job = found.running
    if job is None:
        say("no cell runs on the ranks")
        return
    job.cancel()
    job.wait()
    say(f"{job.name} has ended; the ranks and their variables are kept")


@click.command("logs", cls=MagicCommand)
@click.argument("ranks", required=False, metavar="[RANKS]", shell_complete=_ranks)
@click.pass_obj
def logs(shell: InteractiveShell, ranks: str | None) -> None:
    """Shows the last output lines of a rank, of several ranks such as 0,2-3, or of all ranks."""
    found = sessions.current(shell).running()
    for rank in parse_ranks("%accelerate logs", ranks or "all", found.size):
        for line in found.lines[rank]:
            say(f"[{rank}] {line}")


@click.command("push", cls=MagicCommand)
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=_variables_here)
@click.pass_obj
def push(shell: InteractiveShell, names: tuple[str, ...]) -> None:
    """Sends variables to the ranks, and replaces the ranks' own."""
    session = sessions.current(shell)
    missing = [name for name in names if name not in session.namespace]
    if missing:
        raise ConfigurationError(f"%accelerate push: the notebook has no variable {', '.join(missing)}")
    found = session.ready()
    found.ensure_ready(found.members)
    found.variables.push(dict.fromkeys(names, "%accelerate push"))


@click.command("pull", cls=MagicCommand)
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=_variables_there)
@click.option("--ranks", metavar="RANKS", help="The ranks to read from; by default rank 0.")
@click.pass_obj
def pull(shell: InteractiveShell, names: tuple[str, ...], ranks: str | None) -> None:
    """Copies variables from the ranks to the notebook."""
    found = sessions.current(shell).running()
    members = [0] if ranks is None else parse_ranks("--ranks", ranks, found.size)
    found.ensure_ready(members)
    found.variables.pull(names, members)


@click.command("stacks", cls=MagicCommand)
@click.pass_obj
def stacks(shell: InteractiveShell) -> Any:
    """Shows the Python stack of each rank, while a cell runs."""
    found = sessions.current(shell).running()
    if found.running is None:
        say("no cell runs on the ranks")
        return None
    return found.running.stacks()


@click.command("debug", cls=CodeCommand)
@click.argument("rank", required=False, metavar="[RANK]", shell_complete=_ranks)
@click.argument("commands", required=False, metavar="[COMMANDS]")
@click.pass_obj
def debug(shell: InteractiveShell, rank: str | None, commands: str | None) -> None:
    """Opens pdb where the last cell failed on a rank, or runs pdb commands there, such as `p x ;; up ;; p x`."""
    found = sessions.current(shell).running()
    if rank is not None and not rank.isdecimal():
        raise ConfigurationError(
            "%accelerate debug takes one rank, and then optional pdb commands separated by ;;, as in "
            "%accelerate debug 0 p loss ;; up ;; p batch.shape"
        )
    failed = sorted(found.failed) or [0]
    member = failed[0] if rank is None else parse_ranks("%accelerate debug", rank, found.size)[0]
    found.ensure_ready([member])
    found.call_on_ranks(worker.debug, *([] if commands is None else [commands]), members=[member])


@click.command("cells", cls=MagicCommand)
@click.argument("switch", required=False, type=click.Choice(["on", "off"]), metavar="[on|off]")
@SIZE
@click.option("--keep", is_flag=True, help="With -n: the new ranks get the variables of rank 0.")
@click.option("--ranks", metavar="RANKS", help="Only these ranks run the cells: 0,2-3.")
@SHOW
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
        say(every_cell.current(shell).describe())


def _turn_on(shell: InteractiveShell, size: str | None, options: CellsOptions, *, keep: bool) -> None:
    wanted, ranks = parse_size(size), sessions.current(shell).ranks
    if keep and (wanted is None or ranks is None or ranks.size == wanted):
        there = "no ranks are running" if ranks is None else f"{ranks.size} ranks are running"
        raise ConfigurationError(
            f"--keep is for a change of the number of ranks with -n, but {there}. To replace ranks by as many others, "
            "run `%accelerate restart --keep`"
        )
    found = every_cell.current(shell)
    found.turn_on(wanted, options, keep=keep)
    say(
        f"{found.describe()}. %%here runs a cell in the kernel, and %%rank 0 on some ranks; "
        "`%accelerate cells off` ends this"
    )


def _turn_off(shell: InteractiveShell) -> None:
    found = every_cell.current(shell)
    was_on = found.options is not None
    found.turn_off()
    ranks = sessions.current(shell).ranks
    kept = (
        "; the ranks keep their variables: `%accelerate pull NAME` copies one to the notebook, and "
        "`%accelerate stop` ends the ranks"
        if was_on and ranks is not None
        else ""
    )
    say(f"{found.describe()}{kept}")
