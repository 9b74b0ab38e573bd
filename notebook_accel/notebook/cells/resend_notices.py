"""Words notices about variables that are not sent again although they have changed, or may have."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

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
    source = "" if 0 in ranks else f" --ranks {ranks[0]}"
    return (
        f"{_have_changed(changed_by)} in the notebook, but {who} copy, so the ranks keep what they have. "
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


def _have_changed(names: Collection[str]) -> str:
    return f"{', '.join(f'`{name}`' for name in names)} {'has' if len(names) == 1 else 'have'} changed"
