"""Where ranks disagree about their last collectives.

`rank 1 is in all_reduce #118 of 4 MB, the others in broadcast #118 of 4 MB`
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from notebook_accel.events import Collective, CollectivesRecorded, CollectivesRequested
from notebook_accel.launch.job.job_state import JobState
from notebook_accel.launch.job.requests import RankRequest, Replies
from notebook_accel.launch.job.text import size
from notebook_accel.rank_spans import named

MOST = 100
"""How many collectives of each rank there are, at most."""
DEFAULT_GROUP = "default_pg"
_SAME_SIZE = {"all_reduce", "broadcast", "reduce", "all_reduce_coalesced", "_broadcast_oop"}
"""The collectives that every rank gives as many bytes to. To others, ranks may give different numbers of bytes."""


def request() -> RankRequest:
    """The request for the last collectives of all ranks."""
    return RankRequest(CollectivesRequested(0, MOST))


def mismatch_of(job: JobState, replies: Replies) -> str:
    """Where the ranks disagree, according to their replies by index; empty if they don't."""
    recorded: Mapping[int, list[Collective]] = {
        job.ranks[index].rank: list(event.entries)
        for index, event in replies.items()
        if isinstance(event, CollectivesRecorded) and not event.error
    }
    return mismatch(recorded)


def mismatch(recorded: Mapping[int, Sequence[Collective]]) -> str:
    """The first mismatch in a process group; empty if there is none.

    Args:
        recorded: The last collectives of each rank, by its global rank.
    """
    groups = {entry.group for entries in recorded.values() for entry in entries}
    return next(filter(None, (_of_group(recorded, group) for group in sorted(groups))), "")


def _of_group(recorded: Mapping[int, Sequence[Collective]], group: str) -> str:
    """The same for one group: compares the oldest collective that a rank is in with what the others did then."""
    by_rank = {
        rank: {entry.number: entry for entry in entries if entry.group == group and not entry.between_two}
        for rank, entries in recorded.items()
    }
    entries = [entry for found in by_rank.values() for entry in found.values()]
    number = min((entry.number for entry in entries if not entry.done), default=None)
    if number is None:
        return ""
    present = {rank: found[number] for rank, found in by_rank.items() if number in found}
    late = [
        rank
        for rank, found in by_rank.items()
        if (found or entries[0].group_label == DEFAULT_GROUP) and max(found, default=0) < number
    ]
    kinds: dict[tuple[str, int], list[int]] = {}
    for rank, entry in present.items():
        same = entry.size if entry.operation in _SAME_SIZE else 0
        kinds.setdefault((entry.operation, same), []).append(rank)
    where = "" if entries[0].group_label == DEFAULT_GROUP else f", in the process group {group}"
    if len(kinds) > 1:
        return _different(sorted(kinds.values(), key=lambda ranks: (len(ranks), ranks)), present) + where
    if late and number > 1:
        entry = next(iter(present.values()))
        has = "have" if len(late) > 1 else "has"
        return f"{named(late)} {has} not called {_name(entry)}, which {named([*present])} wait{_s(present)} in{where}"
    return ""


def _different(kinds: list[list[int]], present: Mapping[int, Collective]) -> str:
    """The clauses, the smallest group of ranks first; the last is `the others` where it has several ranks."""
    clauses: list[str] = []
    for position, ranks in enumerate(kinds):
        is_rest = position == len(kinds) - 1 and len(ranks) > 1
        who = "the others" if is_rest else named(ranks)
        verb = "" if clauses else (" are" if len(ranks) > 1 else " is")
        clauses.append(f"{who}{verb} in {_name(present[ranks[0]])}")
    return ", ".join(clauses)


def _name(entry: Collective) -> str:
    return f"{entry.operation} #{entry.number}" + (f" of {size(entry.size, exact=True)}" if entry.size else "")


def _s(ranks: Mapping[int, object]) -> str:
    return "" if len(ranks) > 1 else "s"
