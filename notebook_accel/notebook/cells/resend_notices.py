"""Words notices about variables that are not sent again although they have changed, or may have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from notebook_accel.rank_spans import spans


def describe_kept(changed_by: Mapping[str, Sequence[int]]) -> str:
    """A notice of the variables that ranks have changed themselves, with what the user can do.

    Args:
        changed_by: The names of the variables, each with the ranks that have changed it.
    """
    ranks = sorted(set[int]().union(*changed_by.values()))
    one = len(ranks) == 1
    who = f"rank {ranks[0]} has changed its own" if one else f"ranks {spans(ranks)} have changed their own"
    names = " ".join(changed_by)
    return (
        f"{_quoted(changed_by)} has changed in the notebook, but {who} copy, so the ranks keep what they have. "
        f"`%accelerate push {names}` replaces it with the notebook's; `%accelerate pull {names}` does the opposite"
        f"{f' (from another rank than 0: --ranks {ranks[0]})' if 0 not in ranks else ''}."
    )


def describe_unclear(names: Sequence[str]) -> str:
    """A notice of the variables of which it can't be told whether they have changed."""
    return (
        f"can't tell quickly whether {_quoted(names)} has changed since it was sent to the ranks; if it has, "
        f"`%accelerate push {' '.join(names)}` sends it again."
    )


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
