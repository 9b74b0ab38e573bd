"""The subcommands of `%accelerate` for the persistent ranks of `%%accelerate`. Each is a row in `subcommands.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from notebook_accel.errors import ConfigurationError
from notebook_accel.launch.show import front_end
from notebook_accel.notebook.cells import session as sessions
from notebook_accel.notebook.cells.on_rank import worker
from notebook_accel.notebook.cells.rank_selection import parse_ranks
from notebook_accel.notebook.ipython import magic_options
from notebook_accel.notebook.ipython.magic_options import Option

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

_PULL_OPTIONS = (Option(flags=("--ranks",), value="RANKS", summary="The ranks to read from; by default rank 0."),)


def stop(shell: InteractiveShell, words: Sequence[str]) -> None:
    """Ends the ranks."""
    _refuse_arguments("stop", words)
    session = sessions.current(shell)
    count = session.running().size
    session.stop()
    _write(f"{count} ranks have ended; the next %%accelerate cell starts new ones")


def restart(shell: InteractiveShell, words: Sequence[str]) -> None:
    """Ends the ranks, and starts new ones with the current settings."""
    _refuse_arguments("restart", words)
    session = sessions.current(shell)
    session.running()
    _write(f"{session.restart().size} new ranks; the old ranks' variables are lost")


def interrupt(shell: InteractiveShell, words: Sequence[str]) -> None:
    """Interrupts the cell that runs in the background."""
    _refuse_arguments("interrupt", words)
    found = sessions.current(shell).running()
    job = found.running
    if job is None:
        _write("no cell runs on the ranks")
        return
    job.cancel()
    job.wait()
    _write(f"{job.name} has ended; the ranks and their variables are kept")


def logs(shell: InteractiveShell, words: Sequence[str]) -> None:
    """Shows the last lines that one rank, or each rank, has written."""
    found = sessions.current(shell).running()
    if len(words) > 1:
        raise ConfigurationError("%accelerate logs takes one rank, or several as in 0,2-3")
    chosen = parse_ranks("%accelerate logs", words[0], found.size) if words else list(found.members)
    for rank in chosen:
        for line in found.lines[rank]:
            _write(f"[{rank}] {line}")


def push(shell: InteractiveShell, words: Sequence[str]) -> None:
    """Sends variables of the notebook to all ranks, replacing theirs."""
    session = sessions.current(shell)
    if not words:
        raise ConfigurationError("%accelerate push NAME...: which variables?")
    missing = [name for name in words if name not in session.namespace]
    if missing:
        raise ConfigurationError(f"%accelerate push: the notebook has no variable {', '.join(missing)}")
    found = session.ready()
    found.ensure_ready(found.members)
    found.push(dict.fromkeys(words, "%accelerate push"))


def pull(shell: InteractiveShell, words: Sequence[str]) -> None:
    """Copies variables from the ranks to the notebook."""
    session = sessions.current(shell)
    given, names = magic_options.parse("%accelerate pull", _PULL_OPTIONS, words)
    if not names:
        raise ConfigurationError("%accelerate pull NAME... [--ranks 0]: which variables?")
    found = session.running()
    several = "ranks" in given
    members = parse_ranks("--ranks", given["ranks"][0], found.size) if several else [0]
    found.ensure_ready(members)
    values = found.call_on_ranks(worker.pull, names, members=members)
    for name in names:
        for rank, sent in zip(members, values, strict=True):
            if name not in sent:
                raise ConfigurationError(f"%accelerate pull: rank {rank} has no variable {name}")
    for name in names:
        pulled = [sent[name] for sent in values]
        session.namespace[name] = pulled[0] if len(members) == 1 else pulled


def stacks(shell: InteractiveShell, words: Sequence[str]) -> Any:
    """Shows the stack of each rank."""
    _refuse_arguments("stacks", words)
    found = sessions.current(shell).running()
    if found.running is None:
        _write("no cell runs on the ranks")
        return None
    return found.running.stacks()


def debug(shell: InteractiveShell, words: Sequence[str]) -> None:
    """Opens pdb where the last cell failed on a rank; runs the given commands there, or prompts for commands."""
    found = sessions.current(shell).running()
    if words and not words[0].isdecimal():
        raise ConfigurationError(
            "%accelerate debug takes one rank, and then optional pdb commands separated by ;;, as in "
            "%accelerate debug 0 p loss ;; up ;; p batch.shape"
        )
    failed = sorted(found.failed) or [0]
    member = parse_ranks("%accelerate debug", words[0], found.size)[0] if words else failed[0]
    found.ensure_ready([member])
    found.call_on_ranks(worker.debug, *words[1:], members=[member])


# Completions after a subcommand, for the Tab key


def ranks(shell: InteractiveShell, words: Sequence[str], prefix: str) -> list[str]:
    """A rank."""
    del prefix
    found = sessions.current(shell).ranks
    return [] if found is None or words else list(map(str, found.members))


def variables_here(shell: InteractiveShell, words: Sequence[str], prefix: str) -> list[str]:
    """Variables of the notebook."""
    del prefix
    return [name for name in sessions.current(shell).variables() if name not in words]


def variables_there(shell: InteractiveShell, words: Sequence[str], prefix: str) -> list[str]:
    """Variables that the ranks have bound, and options."""
    found = sessions.current(shell).ranks
    if prefix.startswith("-") or (words and words[-1].startswith("-")) or found is None:
        return magic_options.complete(_PULL_OPTIONS, list(words), prefix)
    own = dict.fromkeys(name for known in found.variables.known for name in known.own())
    return [name for name in own if name not in words]


def _refuse_arguments(name: str, words: Sequence[str]) -> None:
    if words:
        raise ConfigurationError(f"%accelerate {name} takes no arguments, but got {words[0]!r}")


def _write(text: str) -> None:
    front_end.current.write("stdout", text + "\n")
