"""Programs that are drawn at random end on several ranks as on one device, or are refused with a reason.

`scripts/equivalence` tries as many as it is told.
"""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, seed, settings

from tests import preloading
from tests.train.equivalence.drawing import programs
from tests.train.equivalence.program import OURS, Program
from tests.train.equivalence.ranks import Pool
from tests.train.equivalence.verdict import DIFFERENT, FAILED, HUNG, judge

pytestmark = pytest.mark.early


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    preloading.wait()
    with contextlib.closing(Pool()) as started:
        yield started


def check(pool: Pool, program: Program) -> None:
    verdict = judge(pool, program)
    assert verdict.is_good, f"{program}\n{verdict.kind}: {verdict.reason}\n\n{program.script()}"


class Forgetful(Program):
    """One whose ranks keep the gradients of steps before."""

    def script(self, library: str = OURS) -> str:
        return super().script(library).replace("optimizer.zero_grad()", "pass")


class Unmatched(Program):
    """One whose rank 0 waits for the others, which don't come."""

    def script(self, library: str = OURS) -> str:
        return super().script(library).replace("optimizer.zero_grad()", _WAIT)


_WAIT = "accelerator.wait_for_everyone() if accelerator.process_index == 0 else None"


def test_a_difference_is_found(pool: Pool) -> None:
    verdict = judge(pool, Forgetful(ranks=2, samples=6, epochs=2))
    assert verdict.kind == DIFFERENT
    assert not verdict.is_good


def test_ranks_that_wait_forever_are_found(pool: Pool) -> None:
    assert judge(pool, Unmatched(ranks=2, samples=2, evaluated=2)).kind in (HUNG, FAILED)


@pytest.mark.nightly
def test_the_script_of_a_program_runs_by_itself(tmp_path: Path) -> None:
    program = Program(ranks=2, samples=9, batch_size=2, epochs=2, saves=(0, 1), resuming_ranks=1)
    script = tmp_path / "script.py"
    script.write_text(program.script(), encoding="utf-8")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=100)
    assert done.stdout.count("'weights'") == 3, done.stderr


@settings(max_examples=100, suppress_health_check=list(HealthCheck))
@given(programs())
def test_a_hundred_programs_end_as_on_one_device(pool: Pool, program: Program) -> None:
    """It is long because it trains a hundred times."""
    check(pool, program)


@pytest.mark.nightly
@pytest.mark.parametrize("part", range(100))
def test_ten_thousand_programs_end_as_on_one_device(pool: Pool, part: int) -> None:
    """It is long because it trains ten thousand times, which takes an hour or more; each night other programs."""
    number = random.SystemRandom().randrange(10**6)
    print(f"part {part}: scripts/equivalence --seed {number} tries the same programs")

    @seed(number)
    @settings(max_examples=100, derandomize=False, suppress_health_check=list(HealthCheck))
    @given(programs())
    def run(program: Program) -> None:
        check(pool, program)

    run()
