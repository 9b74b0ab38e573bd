"""Faults that are known, so that programs which show them are not drawn. The list should be empty."""

from __future__ import annotations

from collections.abc import Callable

from tests.train.equivalence.program import Program

FAULTS: dict[str, Callable[[Program], bool]] = {
    "rank 0 takes a list of records, whose sampler chooses its length, for one record of lists": lambda program: (
        program.form == "records" and program.is_ragged and program.dispatches
    ),
}
"""By what is wrong, whether a program would show it."""


def is_spared(program: Program) -> bool:
    """Whether a program would only show a fault that is known."""
    return any(shows(program) for shows in FAULTS.values())
