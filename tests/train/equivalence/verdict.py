"""Compares what ranks return with what one device gives."""

from __future__ import annotations

import math
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from tests.train.equivalence import reference
from tests.train.equivalence.program import ACCELERATES, OURS, STRATEGIES, Program, resumption
from tests.train.equivalence.ranks import Hang, Outcome, Pool, load

TOLERANCES = {"no": 1e-9, "bf16": 0.05}
"""By precision: the sums of float64 differ only in their order."""
EQUAL, REFUSED, WARNED = "equal", "refused", "warned"
DIFFERENT, FAILED, HUNG = "different", "failed", "hung"
GOOD = (EQUAL, REFUSED, WARNED)
_REFUSALS = {"NotebookAccelError", "NotImplementedError", "ValueError"}
"""What a library raises to say why it does not do something."""
_BECAUSE = "see the error of rank 0"
"""How the error of a rank ends that fails because of another's."""
_OTHERS = ("UserWarning: Detected call of `lr_scheduler.step()`", "UserWarning: FSDP2-wrapped module")
"""How the warnings begin that do not say why numbers differ."""


@dataclass(frozen=True)
class Verdict:
    """How a program has ended, and why."""

    kind: str
    reason: str = ""

    @property
    def is_good(self) -> bool:
        """Whether the numbers are right, or somebody has said why not."""
        return self.kind in GOOD


def judge(pool: Pool, program: Program, library: str = OURS) -> Verdict:
    """Runs a program on its ranks, and compares."""
    if library == ACCELERATES:
        program = replace(program, counts=False)  # it has no `epochs`
    source = program.script(library)
    with tempfile.TemporaryDirectory() as folder:
        runs = [(program.ranks, (folder,) if program.saves else ())]
        if program.saves:
            again = () if program.is_interrupted else resumption(program)
            runs.append((program.resuming_ranks, (folder, True, *again)))
        outcomes: list[list[Outcome]] = []
        for ranks, arguments in runs:
            try:
                outcomes.append(pool.run(ranks, source, arguments, STRATEGIES[program.strategy].wear))
            except Hang as hang:
                return Verdict(HUNG, str(hang))
            if failed := [each for each in outcomes[-1] if each.error]:
                return _failure(failed, library)
    tolerance = TOLERANCES[program.precision]
    results = [[each.result for each in run] for run in outcomes]
    try:
        seen = [[each["seen"] for each in run] for run in results]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a schedule that doesn't wait for the optimizer is warned of
            wanted = reference.expected(program, load(source), *seen)
        differences = (each for run in zip(results, wanted, strict=True) for each in _differences(*run, tolerance))
        difference = next(differences, "")
    except reference.Illegal as illegal:
        difference = str(illegal)
    if not difference:
        return Verdict(EQUAL)
    texts = {text for run in outcomes for each in run for text in each.warnings if not text.startswith(_OTHERS)}
    if said := sorted(texts):
        return Verdict(WARNED, "\n".join([difference, *said]))
    return Verdict(DIFFERENT, difference)


def _failure(failed: list[Outcome], library: str) -> Verdict:
    refused = [each for each in failed if each.raised_by == library and _REFUSALS.intersection(each.error_types)]
    if others := [each for each in failed if each not in refused and not each.message.endswith(_BECAUSE)]:
        return Verdict(FAILED, others[0].error)
    late = [each for each in refused if each.has_trained]
    return (
        Verdict(FAILED, f"refused only during the training:\n{late[0].error}")
        if late
        else Verdict(REFUSED, refused[0].message)
    )


def _differences(results: list[dict[str, Any]], wanted: reference.Expected, tolerance: float) -> Iterator[str]:
    def _near(found: Any, wanted: Any) -> bool:
        return _are_near(found, wanted, tolerance)

    for rank, found in enumerate(results):
        if found["seen"] != wanted.seen[rank]:
            yield f"rank {rank} has read {found['seen']}\ninstead of   {wanted.seen[rank]}"
        if not _near(found["rates"], wanted.rates[rank]):
            yield f"rank {rank} has the learning rates {found['rates']}\ninstead of {wanted.rates[rank]}"
        if any(found["losses"]) and not _near(found["losses"], wanted.losses):
            yield f"rank {rank} has gathered {found['losses']}\ninstead of {wanted.losses}"
        if not _near(found["reduced"], wanted.reduced):
            yield f"rank {rank} has reduced {found['reduced']}\ninstead of {wanted.reduced}"
        if not _near(found["evaluations"], wanted.evaluations):
            yield f"rank {rank} has evaluated {found['evaluations']}\ninstead of {wanted.evaluations}"
    if not wanted.is_cut and not _near(results[0]["weights"], wanted.weights):
        yield f"the weights are {results[0]['weights']}\ninstead of {wanted.weights}"


def _are_near(found: Any, wanted: Any, tolerance: float) -> bool:
    """Whether trees of numbers are the same."""
    if isinstance(wanted, dict):
        return found.keys() == wanted.keys() and all(_are_near(found[key], wanted[key], tolerance) for key in wanted)
    if isinstance(wanted, (list, tuple)):
        return len(found) == len(wanted) and all(
            _are_near(*each, tolerance) for each in zip(found, wanted, strict=True)
        )
    return math.isclose(found, wanted, rel_tol=tolerance, abs_tol=tolerance)
