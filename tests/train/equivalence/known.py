"""Faults that are known, so that programs which show them are not drawn. The list should be empty."""

from __future__ import annotations

from collections.abc import Callable

from tests.train.equivalence.program import Program

FAULTS: dict[str, Callable[[Program], bool]] = {
    # Such as two samples that are dicts of four numbers, which can also be a group of columns of four samples.
    "rank 0 can't tell a list of records from a group of columns": lambda program: (
        program.form == "records" and program.dispatches
    ),
}
"""By what is wrong, whether a program would show it."""


def is_spared(program: Program) -> bool:
    """Whether a program would only show a fault that is known."""
    return any(shows(program) for shows in FAULTS.values())
