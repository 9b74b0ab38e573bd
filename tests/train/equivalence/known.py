"""Faults that are known, so that programs which show them are not drawn. The list should be empty."""

from __future__ import annotations

from collections.abc import Callable

from tests.train.equivalence.program import Program


def _reduces_shared(program: Program) -> bool:
    return bool(program.reduces) and program.sharing > 1


FAULTS: dict[str, Callable[[Program], bool]] = {
    "no_sync ends by switching synchronization on": lambda program: program.nested or program.local_steps > 0,
    "clip_grad_value_ and clip_grad_norm_ fail under a plan for some layers": lambda program: (
        bool(program.clip) and "tensor" in program.strategy
    ),
    "reduce counts samples that ranks share several times": _reduces_shared,
}
"""By what is wrong, whether a program would show it."""


def is_spared(program: Program) -> bool:
    """Whether a program would only show a fault that is known."""
    return any(shows(program) for shows in FAULTS.values())
