"""What is said of the ranks of cells: those that don't respond or have ended, their variables, and their settings."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields

from notebook_accel.config import LaunchConfig
from notebook_accel.events import Exited
from notebook_accel.launch.plan.plan import Plan
from notebook_accel.notebook.cells.on_rank.kept_names import Packed
from notebook_accel.rank_spans import counted, named, spans

_MOST_NAMES = 12
"""The most names in a list."""
_PLANNED = ("num_processes", "device")
"""Settings that the plan chooses if they are not set."""
_SECRET = ("env",)
"""Settings whose values are never shown, because they may be secret and notebooks are shared."""


def how_it_ended(exited: Exited) -> str:
    """The end of a sentence about a rank: `was killed by signal 9`."""
    if exited.lost:
        return f"was lost with machine {exited.lost}"
    return f"was killed by signal {exited.signal}" if exited.signal else f"ended with status {exited.code}"


def unresponsive(ranks: Collection[int], lost: str) -> str:
    """Of ranks that have not stopped with the others; `lost` says which variables would end with them."""
    do, them = ("do", "them") if len(ranks) > 1 else ("does", "it")
    return (
        f"{named(ranks).capitalize()} {do} not respond to the request to stop, perhaps because of C code. Cells can "
        f"run there again once that code returns. `%accelerate restart` ends {them} now{lost}."
    )


def gone(ranks: Collection[int], lost: str) -> str:
    """Of ranks that have ended."""
    verb = "are" if len(ranks) > 1 else "is"
    return f"{named(ranks).capitalize()} {verb} gone. `%accelerate restart` starts new ranks{lost}."


def still_busy(ranks: Collection[int], lost: str) -> str:
    """Of ranks that still run a cell that was stopped, when another cell is about to run there."""
    verb, them = ("are", "them") if len(ranks) > 1 else ("is", "it")
    return (
        f"{named(ranks)} {verb} still busy with a cell that was stopped: try again later, or end {them} with "
        f"`%accelerate restart`{lost}."
    )


def dead(rank: int, how: str, others: Collection[int]) -> str:
    """Of a rank that has ended, when a cell is about to run there; the others remain."""
    rescue = f" (`%%accelerate --ranks {spans(others)}` still runs on the others)" if others else ""
    return f"rank {rank} {how}: `%accelerate restart` starts new ranks{rescue}."


def only_on_ranks(name: str) -> str:
    """Of a name that a cell in the kernel reads, and that only the ranks have."""
    return (
        f"{name} is defined on the ranks: begin the cell with %%accelerate to use it there, or run "
        f"`%accelerate pull {name}` to bring it to the notebook"
    )


def describe_kept(changed_by: Mapping[str, Sequence[int]], how: str = "changed") -> str:
    """A notice of the variables that ranks have changed or assigned themselves, with what the user can do.

    Args:
        changed_by: The names of the variables, each with the ranks that have changed it.
        how: `changed`, or `assigned`: the notebook and the ranks have each assigned the names.
    """
    ranks = sorted(set[int]().union(*changed_by.values()))
    one = len(ranks) == 1
    who = f"rank {ranks[0]} has {how} its own" if one else f"ranks {spans(ranks)} have {how} their own"
    copy = " copy" if how == "changed" else ""
    names = " ".join(changed_by)
    source = "" if 0 in ranks else f" --ranks {ranks[0]}"
    return (
        f"{_have_changed(changed_by, how)} in the notebook, but {who}{copy}, so the ranks keep what they have. "
        f"`%accelerate push {names}` sends the notebook's to the ranks; `%accelerate pull {names}{source}` brings "
        f"rank {0 if 0 in ranks else ranks[0]}'s here."
    )


def describe_unclear(names: Sequence[str]) -> str:
    """A notice of the variables of which it can't be told whether they have changed."""
    since = "it was" if len(names) == 1 else "they were"
    return (
        f"can't tell quickly whether {_have_changed(names)} since {since} sent to the ranks; if so, "
        f"`%accelerate push {' '.join(names)}` sends the new content."
    )


def describe_replaced(size: int, before: int, packed: Packed) -> str:
    """A notice of ranks that have been replaced, with the variables that the new ones have and lack."""
    ranks = f"{counted(size, 'new rank')} instead of {before}"
    has = "has" if size == 1 else "have"
    kept = (
        f"{has} the variables of rank 0: {listed(packed.names)}" if packed.names else f"{has} no variables of the old"
    )
    by_reason: dict[str, list[str]] = {}
    for name, reason in packed.left_out.items():
        by_reason.setdefault(reason, []).append(name)
    lost = "; ".join(f"{listed(names)} ({reason})" for reason, names in by_reason.items())
    return f"{ranks} {kept}" + (f". Not kept: {lost}" if lost else "")


def listed(names: Sequence[str]) -> str:
    """The first of these names, and how many more there are; empty if there are none."""
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def _have_changed(names: Collection[str], how: str = "changed") -> str:
    done = "changed" if how == "changed" else f"been {how}"
    return f"{', '.join(f'`{name}`' for name in names)} {'has' if len(names) == 1 else 'have'} {done}"


def differences(alive: Plan, now: Plan) -> list[str]:
    """Settings that differ between the running ranks and new ones: `num_processes=2, not 3`."""
    found = [("num_processes", alive.size, now.size), ("device", alive.device, now.device)]
    found += [
        (each.name, getattr(alive.config, each.name), getattr(now.config, each.name))
        for each in fields(LaunchConfig)
        if each.compare and each.name not in _PLANNED
    ]
    return [
        name if name in _SECRET else f"{name}={_text(running)}, not {_text(new)}"
        for name, running, new in found
        if running != new
    ]


def _text(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value) or "none"
