"""Writes rank numbers and counts for people, where launches and training both do."""

from __future__ import annotations

from collections.abc import Collection, Iterable


def spans(ranks: Iterable[int]) -> str:
    """`0-2,5` for 0, 1, 2 and 5."""
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def counted(count: int | None, noun: str = "rank") -> str:
    """`1 rank`, `4 ranks`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def named(ranks: Collection[int]) -> str:
    """`rank 5` for 5, and `ranks 0-2,5` for 0, 1, 2 and 5."""
    return f"rank{'s' if len(ranks) > 1 else ''} {spans(ranks)}"
