"""The table of subcommands of `%accelerate`.

A new one needs a row in `SUBCOMMANDS` and a function in `rank_commands.py` or `job_commands.py`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from notebook_accel.errors import ConfigurationError, did_you_mean

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


@dataclass(frozen=True)
class Subcommand:
    """One subcommand of `%accelerate`."""

    name: str
    arguments: str
    """Its arguments, for the help: `[RANK]`."""
    summary: str
    """What it does, in one line."""
    run: str
    """`module.function` in `notebook_accel.notebook`, imported when it is first used. Called with the shell and the
    words that follow; the magic returns its value."""
    complete: str = ""
    """Likewise, for completion: called with the shell, the words before the cursor, and the start of the last one."""
    takes_code: bool = False
    """Everything after its first word is code, passed unchanged as one string."""

    def load(self) -> Callable[..., Any]:
        return _load(self.run)


SUBCOMMANDS: tuple[Subcommand, ...] = (
    Subcommand("status", "", "Shows the status, like %accelerate alone.", "magics.configure.show_status"),
    Subcommand("stop", "", "Ends the ranks of %%accelerate.", "magics.rank_commands.stop"),
    Subcommand("restart", "", "Ends them and starts new ones, with current settings.", "magics.rank_commands.restart"),
    Subcommand("interrupt", "", "Interrupts the cell that runs in the background.", "magics.rank_commands.interrupt"),
    Subcommand(
        "logs",
        "[RANK]",
        "Shows the last lines of a rank, or of all ranks.",
        "magics.rank_commands.logs",
        "magics.rank_commands.ranks",
    ),
    Subcommand(
        "push",
        "NAME...",
        "Sends variables to the ranks, replacing theirs.",
        "magics.rank_commands.push",
        "magics.rank_commands.variables_here",
    ),
    Subcommand(
        "pull",
        "NAME... [--ranks 0]",
        "Copies variables from the ranks to the notebook.",
        "magics.rank_commands.pull",
        "magics.rank_commands.variables_there",
    ),
    Subcommand("stacks", "", "Shows where each rank is, while a cell runs.", "magics.rank_commands.stacks"),
    Subcommand(
        "debug",
        "[RANK [COMMANDS]]",
        "Opens pdb where the last cell failed on a rank, or runs pdb commands there, such as `p x ;; up ;; p x`.",
        "magics.rank_commands.debug",
        "magics.rank_commands.ranks",
        takes_code=True,
    ),
    Subcommand("jobs", "", "Lists the last jobs of all notebooks.", "magics.job_commands.list_jobs"),
    Subcommand(
        "attach",
        "[JOB]",
        "Shows a job again; the last one by default.",
        "magics.job_commands.attach_job",
        "magics.job_commands.complete",
    ),
)


def names() -> list[str]:
    """The names of all subcommands."""
    return [each.name for each in SUBCOMMANDS]


def get(name: str) -> Subcommand:
    """Returns the subcommand with the given name.

    Raises:
        ConfigurationError: There is no such subcommand.
    """
    known = {each.name: each for each in SUBCOMMANDS}
    if name not in known:
        hint = did_you_mean(name, known) or f"; it has {', '.join(known)}, and options such as -n 2"
        raise ConfigurationError(f"%accelerate has no subcommand {name!r}{hint}")
    return known[name]


def complete(shell: InteractiveShell, words: list[str], prefix: str) -> list[str]:
    """Completions of `prefix` after a subcommand and its arguments so far."""
    row = next((each for each in SUBCOMMANDS if each.name == words[0]), None)
    if row is None or not row.complete:
        return []
    return [each for each in _load(row.complete)(shell, words[1:], prefix) if each.startswith(prefix)]


def describe() -> str:
    """The subcommands, formatted for a help page."""
    rows = [(f"{each.name} {each.arguments}".rstrip(), each.summary) for each in SUBCOMMANDS]
    width = max(len(usage) for usage, _ in rows)
    return "\n".join(f"  {usage:<{width}}  {summary}" for usage, summary in rows)


def _load(path: str) -> Callable[..., Any]:
    module, _, function = path.rpartition(".")
    found: Callable[..., Any] = getattr(importlib.import_module(f"notebook_accel.notebook.{module}"), function)
    return found
