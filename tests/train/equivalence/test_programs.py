"""Programs that are drawn at random end on several ranks as on one device, or are refused with a reason.

`scripts/equivalence` tries as many as it is told.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, seed, settings

from tests import preloading
from tests.train.equivalence.drawing import programs
from tests.train.equivalence.program import Program
from tests.train.equivalence.ranks import Pool
from tests.train.equivalence.verdict import judge

pytestmark = pytest.mark.early


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    preloading.wait()
    with contextlib.closing(Pool()) as started:
        yield started


def check(pool: Pool, program: Program) -> None:
    verdict = judge(pool, program)
    assert verdict.is_good, f"{program}\n{verdict.kind}: {verdict.reason}\n\n{program.script()}"


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
