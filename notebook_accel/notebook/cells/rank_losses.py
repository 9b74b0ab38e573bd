"""What is said of the ranks of cells that don't respond, or have ended."""

from __future__ import annotations

from collections.abc import Collection

from notebook_accel.events import Exited
from notebook_accel.rank_spans import named, spans


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
    """Of ranks that still run a cell that was stopped, when another cell is to run there."""
    verb, them = ("are", "them") if len(ranks) > 1 else ("is", "it")
    return (
        f"{named(ranks)} {verb} still busy with a cell that was stopped: try again later, or end {them} with "
        f"`%accelerate restart`{lost}."
    )


def dead(rank: int, how: str, others: Collection[int]) -> str:
    """Of a rank that has ended, when a cell is to run there; the others are left."""
    rescue = f" (`%%accelerate --ranks {spans(others)}` still runs on the others)" if others else ""
    return f"rank {rank} {how}: `%accelerate restart` starts new ranks{rescue}."
