"""The click command of `%%accelerate`: its options, and what a line of them means, such as the ranks `0,2-3`."""

from __future__ import annotations

import keyword
import re
from collections.abc import Sequence
from dataclasses import dataclass

import click

from notebook_accel.errors import ConfigurationError
from notebook_accel.notebook.cells.persistent import PersistentRanks
from notebook_accel.notebook.ipython.magic_commands import MagicCommand

_HELP = """Runs a cell on every rank of a persistent group.

\b
%%accelerate -n 2
model = accelerator.prepare(Net())       the ranks keep their variables from cell to cell
model(data).mean()                       data is sent once, if the notebook has it and the ranks don't

The first such cell starts the ranks. Each has `rank`, `world_size` and `device`, and a process group, so that plain
torch.distributed and Accelerator() work right away. The value of the last expression is shown for each rank, and
equal values once. An interrupt or an error ends the cell on all ranks, but the ranks keep running, and keep their
variables.
"""


@dataclass(frozen=True)
class CellArguments:
    """The parsed options of a line."""

    size: int | None
    ranks: str | None
    show: str | None
    name: str | None
    block: bool
    keep: bool = False

    def members(self, ranks: PersistentRanks) -> Sequence[int]:
        """The ranks that run the cell."""
        return list(ranks.members) if self.ranks is None else parse_ranks("--ranks", self.ranks, ranks.size)


class _CellMagic(MagicCommand):
    interface = "%%accelerate"


SIZE = click.option(
    "-n", "--num-processes", "size", metavar="N", help="The number of ranks; another number starts new ranks."
)
SHOW = click.option("--show", metavar="RANKS", help="Ranks whose figures and tables are shown; by default the first.")


@click.command(cls=_CellMagic, help=_HELP)
@SIZE
@click.option("--keep", is_flag=True, help="With -n: ranks of another number get the variables of rank 0.")
@click.option("--ranks", metavar="RANKS", help="Only these ranks run the cell: 0,2-3.")
@SHOW
@click.option("--as", "name", metavar="NAME", help="Stores the last expression's value on each rank in the list NAME.")
@click.option("--no-block", is_flag=True, help="Runs the cell in the background; its value is a Job.")
@click.argument("rest", nargs=-1, metavar="")
def command(
    size: str | None,
    keep: bool,
    ranks: str | None,
    show: str | None,
    name: str | None,
    no_block: bool,
    rest: tuple[str, ...],
) -> CellArguments:
    """Checks the options of a line."""
    if rest:
        raise ConfigurationError(
            f"%%accelerate takes only options, not {rest[0]!r}: write the code to run below this line; "
            f"subcommands take a single percent sign, as in `%accelerate {rest[0]}`"
        )
    if name is not None and (not name.isidentifier() or keyword.iskeyword(name)):
        raise ConfigurationError(f"--as {name}: expected the name of a variable")
    if keep and size is None:
        raise ConfigurationError("--keep is for another number of ranks, as in %%accelerate -n 4 --keep")
    return CellArguments(parse_size(size), ranks, show, name, block=not no_block, keep=keep)


def parse_size(text: str | None) -> int | None:
    """The number of ranks that `-n` asks for.

    Raises:
        ConfigurationError: The text is not a number of ranks.
    """
    if text is not None and not (text.isdecimal() and int(text)):
        raise ConfigurationError(f"-n {text}: expected a number of ranks, such as -n 2")
    return None if text is None else int(text)


def parse_ranks(option: str, text: str, size: int) -> list[int]:
    """Parses `0,2-3` or `all` into rank numbers.

    Raises:
        ConfigurationError: The text is not valid, or there is no such rank.
    """
    if text == "all":
        return list(range(size))
    found: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
        if match is None:
            raise ConfigurationError(f"{option} {text}: write ranks as 0,2-3, or all")
        found.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    if not found or not found <= set(range(size)):
        there = f"the ranks are 0 to {size - 1}" if size > 1 else "the only rank is 0"
        raise ConfigurationError(f"{option} {text}: {there}")
    return sorted(found)
