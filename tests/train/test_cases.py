"""Cases that share a launch are tests of their own all the same."""

import pytest
import torch

from notebook_accel import Accelerator, GradientState, RankError
from tests.train.conftest import Cases


def summed(number: int) -> int:
    return int(Accelerator().reduce(torch.tensor(number), "sum"))


def failed_on_one() -> int:
    if Accelerator().process_index == 1:
        raise KeyError("mine")
    return summed(1)


left_behind: list[int] = []


def leaving_something() -> tuple[list[int], int, float]:
    found = list(left_behind), Accelerator().gradient_accumulation_steps, torch.rand(()).item()
    GradientState().num_steps = 5
    left_behind.append(1)
    if found[0]:
        raise ValueError("there was another before")
    return found


def test_a_case_that_fails_on_one_rank_fails_alone() -> None:
    cases = Cases({"first": (summed, 1), "bad": (failed_on_one,), "last": (summed, 3)})
    assert (cases["first"], cases["last"]) == ([2, 2], [6, 6])
    with pytest.raises(RankError) as failed:
        cases["bad"]
    assert isinstance(failed.value.__cause__, KeyError)


def test_a_case_that_fails_only_after_others_fails() -> None:
    cases = Cases({1: (leaving_something,), 2: (leaving_something,)})
    first, _ = cases[1]
    assert first[:2] == ([], 1)
    with pytest.raises(pytest.fail.Exception, match=r"fails only after others:(.|\n)*there was another before"):
        cases[2]


def settings(precision: str) -> tuple[str, int, float]:
    accelerator = Accelerator(mixed_precision=precision)
    found = accelerator.mixed_precision, accelerator.gradient_accumulation_steps, torch.rand(()).item()
    GradientState().num_steps = 5
    return found


@pytest.mark.parametrize("size", [1, 2])
def test_each_case_begins_with_states_of_its_own(size: int) -> None:
    cases = Cases({precision: (settings, precision) for precision in ("no", "bf16")}, size=size)
    (first, *_), (second, *_) = cases["no"], cases["bf16"]
    assert (first[:2], second[:2]) == (("no", 1), ("bf16", 1))
    assert first[2] == second[2]
