"""Which trials a sweep has, and which of them successive halving stops."""

from __future__ import annotations

import math
import random
from types import SimpleNamespace
from typing import Any

import pytest

from notebook_accel.errors import ConfigurationError
from notebook_accel.runs import search
from notebook_accel.runs.search import Halving

GRID = {"lr": [1, 2, 3], "wd": [0, 0.1]}


def trials(space: Any, n: int | None = None, seed: int = 0) -> list[dict[str, Any]]:
    found = search.make(space, n, seed, None)
    assert found.known is not None
    assert [found.ask(number) for number in range(found.total)] == list(found.known)
    return list(found.known)


def test_a_dict_of_lists_gives_each_combination() -> None:
    assert trials(GRID) == [{"lr": lr, "wd": wd} for lr in (1, 2, 3) for wd in (0, 0.1)]


def test_a_list_gives_each_of_its_trials_though_they_name_different_parameters() -> None:
    space = [{"lr": 1}, {"lr": 2, "wd": 3}]
    assert trials(space) == space
    assert search.make(space, None, 0, None).names == ["lr", "wd"]


def test_random_trials_of_lists_are_different_and_the_same_with_the_same_seed() -> None:
    found = trials(GRID, 4, 7)
    assert len({tuple(each.items()) for each in found}) == 4
    assert all(each in trials(GRID) for each in found)
    assert found == trials(GRID, 4, 7)
    assert found != trials(GRID, 4, 8)
    assert sorted(map(str, trials(GRID, 99))) == sorted(map(str, trials(GRID)))


def test_a_function_draws_values() -> None:
    def draw(source: random.Random) -> float:
        return source.uniform(1, 2)

    found = trials({"lr": draw, "wd": [0]}, 5)
    assert len({each["lr"] for each in found}) == 5
    assert all(1 <= each["lr"] <= 2 and each["wd"] == 0 for each in found)


@pytest.mark.parametrize(
    ("space", "n", "said"),
    [
        ({}, None, "no parameters"),
        ([], None, "a dict of lists"),
        ("lr", None, "a dict of lists"),
        ({"lr": 0.1}, None, "write \\[value\\]"),
        ({"lr": "abc"}, None, "write \\[value\\]"),
        ({"lr": []}, None, "is not a list of values"),
        ({1: [2]}, None, "names"),
        ([3], None, "a dict by name"),
        ([{"lr": 1}], 3, "leave n out"),
        ({"lr": random.random}, None, "n=20"),
        ({"lr": 0.1}, 3, "can't be drawn from"),
        ({"lr": [1]}, 0, "n=0: it must be at least 1"),
        ({"lr": [1]}, True, "n must be a whole number, not True"),
        ({"a": range(1000), "b": range(1000)}, None, "1000000 trials"),
    ],
)
def test_what_describes_no_trials_is_refused(space: Any, n: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        search.make(space, n, 0, None)


@pytest.mark.parametrize(("space", "n"), [([{"lr": 1}], 3), ({"lr": [1]}, None)])
def test_a_study_needs_a_dict_and_a_number(space: Any, n: int | None) -> None:
    with pytest.raises(ConfigurationError, match="with study="):
        search.make(space, n, 0, SimpleNamespace(ask=int, tell=int))
    with pytest.raises(ConfigurationError, match="not a study of Optuna"):
        search.make({"lr": [1]}, 3, 0, object())


def test_halving_keeps_the_best_third_at_each_rung() -> None:
    halving = Halving(10, 3, -1)
    stopped = [bool(halving.report(number, 10, value)) for number, value in enumerate([5, 4, 9, 3, 8])]
    # of 1, 2, 3, 4 and 5 values, the best 1, 1, 1, 2 and 2 go on
    assert stopped == [False, False, True, False, True]
    assert not halving.report(0, 29, 100)
    assert not halving.report(3, 30, 100)
    assert halving.report(0, 30, 101) == "101 at step 30 was not the best of 2"


def test_halving_compares_at_the_rung_and_once() -> None:
    halving = Halving(10, 2, 1)
    assert not halving.report(0, 9, 1)
    assert not halving.report(0, 10, 1)
    assert not halving.report(0, 11, 0)
    assert halving.report(1, 12, 0.5) == "0.5 at step 12 was not the best of 2"


def test_a_value_that_is_not_a_number_is_the_worst() -> None:
    assert Halving(1, 3, -1).report(0, 1, math.nan)
    assert Halving(1, 3, -1).report(0, 1, math.inf)
    assert Halving(1, 3, 1).report(0, 1, math.inf)
    assert Halving(1, 3, -1).report(0, 1, -math.inf)
