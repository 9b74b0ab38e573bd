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
from typing import Any

import pytest
from hypothesis import HealthCheck, given, seed, settings

from tests.train.equivalence.drawing import programs
from tests.train.equivalence.program import OURS, Program
from tests.train.equivalence.ranks import Pool
from tests.train.equivalence.verdict import DIFFERENT, EQUAL, FAILED, HUNG, REFUSED, judge

pytestmark = pytest.mark.early


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
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
    """It is long on a busy machine because it starts the first ranks."""
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


UNEVEN: dict[str, Any] = {"ranks": 2, "even_batches": False}
FOUND = {
    "a rank that has run out of batches keeps its momentum": (
        Program(**UNEVEN, samples=5, epochs=2, optimizer="momentum"),
        EQUAL,
    ),
    "a rank that has run out of batches keeps its learning rate": (
        Program(**UNEVEN, samples=3, epochs=2, scheduler="exponential"),
        EQUAL,
    ),
    "ranks end an accumulation at different batches": (Program(**UNEVEN, samples=3, accumulation=2), REFUSED),
    "ranks of a stream end an accumulation at different batches": (
        Program(**UNEVEN, data="sized stream", samples=3, accumulation=2, dispatch_batches=False),
        REFUSED,
    ),
    "rank 0 sends fewer batches to some, which accumulate": (
        Program(**UNEVEN, samples=3, accumulation=2, dispatch_batches=True),
        REFUSED,
    ),
    "ranks end an accumulation at the same batch": (Program(**UNEVEN, samples=5, accumulation=2), EQUAL),
    "some ranks would not take part in the mean of a plateau's errors": (
        Program(**UNEVEN, samples=3, scheduler="plateau", metric="own"),
        REFUSED,
    ),
    "some ranks would not take part in the average of the weights": (
        Program(**UNEVEN, samples=3, local_steps=1),
        REFUSED,
    ),
    "ranks would be evaluated with the averages of different states": (
        Program(ranks=2, samples=4, local_steps=1, optimizer="schedule-free"),
        REFUSED,
    ),
    "ranks tell a plateau different errors": (
        Program(ranks=2, samples=8, epochs=4, scheduler="plateau", metric="own"),
        EQUAL,
    ),
    "two ranks leave an order to one": (
        Program(ranks=2, samples=9, batch_size=2, order="shuffled", epochs=2, split_batches=True, saves=(0, 2)),
        EQUAL,
    ),
    "one rank leaves an order to two": (
        Program(samples=9, order="shuffled", epochs=2, saves=(0, 4), resuming_ranks=2),
        EQUAL,
    ),
    "a schedule-free optimizer continues from shards": (
        Program(ranks=2, strategy="fsdp", samples=8, optimizer="schedule-free", saves=(0, 2), resuming_ranks=2),
        EQUAL,
    ),
    "rank 0 continues in a stream, whose first samples it no longer has": (
        Program(ranks=3, data="stream", samples=20, saves=(0, 5), resuming_ranks=3, is_stateful=True),
        EQUAL,
    ),
    "rank 0 divides each batch, and has read another one": (
        Program(
            ranks=3,
            samples=23,
            batch_size=6,
            split_batches=True,
            dispatch_batches=True,
            saves=(0, 1),
            resuming_ranks=3,
            is_stateful=True,
        ),
        EQUAL,
    ),
    "a batch is a list of samples, and its sampler chooses how many": (
        Program(ranks=2, form="records", order="own batches"),
        EQUAL,
    ),
    "the weights of one rank would replace those that others average": (
        Program(**UNEVEN, samples=2, local_steps=2),
        EQUAL,
    ),
    "a rank has no batch at all": (Program(**UNEVEN, samples=1, accumulation=2, epochs=2, optimizer="adamw"), EQUAL),
}
"""Programs that were wrong once, or nearly, and how they end."""


@pytest.mark.parametrize("name", FOUND)
def test_what_was_found_is_mended(pool: Pool, name: str) -> None:
    program, kind = FOUND[name]
    verdict = judge(pool, program)
    assert verdict.kind == kind, verdict.reason


def check_some(pool: Pool, number: int, count: int) -> None:
    @seed(number)
    @settings(max_examples=count, derandomize=False, suppress_health_check=list(HealthCheck))
    @given(programs())
    def run(program: Program) -> None:
        check(pool, program)

    run()


def test_some_programs_end_as_on_one_device(pool: Pool) -> None:
    """It is long because it trains 25 times."""
    check_some(pool, 1, 25)


@pytest.mark.nightly
@pytest.mark.parametrize("part", range(200))
def test_ten_thousand_programs_end_as_on_one_device(pool: Pool, part: int) -> None:
    """It is long because all parts train ten thousand times, which takes hours; each night other programs."""
    number = random.SystemRandom().randrange(10**6)
    print(f"part {part}: scripts/equivalence --programs 50 --seed {number} tries the same programs")
    check_some(pool, number, 50)
