"""Words notices about variables: those that are not sent again, and those that new ranks get or don't get."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from notebook_accel.notebook.cells.on_rank.kept_names import Packed
from notebook_accel.rank_spans import spans

_MOST = 12
"""The most names in a list."""


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
    ranks = f"{size} new rank{'' if size == 1 else 's'} instead of {before}"
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
    more = len(names) - _MOST
    return ", ".join(names[:_MOST]) + (f" and {more} more" if more > 0 else "")


def _have_changed(names: Collection[str], how: str = "changed") -> str:
    done = "changed" if how == "changed" else f"been {how}"
    return f"{', '.join(f'`{name}`' for name in names)} {'has' if len(names) == 1 else 'have'} {done}"
