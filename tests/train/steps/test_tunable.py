"""Values that change while a training runs, without a launch around them."""

from __future__ import annotations

from typing import Any

import pytest

from notebook_accel.errors import ConfigurationError
from notebook_accel.train.steps.tunables import Tunable, Tunables

pytestmark = pytest.mark.smoke


def test_an_integer_stays_one() -> None:
    tunable = Tunable("every", 4, 1, None, None)
    tunable.set(8.0)
    assert (tunable.value, type(tunable.value)) == (8, int)
    assert tunable.refusal(2.5) == "every=2.5 is not an integer, unlike its first value"
    assert tunable.refusal(0) == "every must be at least 1, not 0"


def test_its_function_gets_each_new_value() -> None:
    seen: list[float] = []
    tunable = Tunable("lr", 0.1, 0, 1, seen.append)
    tunable.set(0.5)
    tunable.restore(0.1)
    assert (seen, tunable.value, float(tunable)) == ([0.5], 0.1, 0.1)
    assert tunable.refusal(2) == "lr must be at most 1, not 2"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (("a b", 1.0, None, None), "use a Python name"),
        (("timeout", 1.0, None, None), "an argument of job.tune"),
        (("lr", float("nan"), None, None), "value=nan of the tunable lr is not a finite number"),
        (("lr", 10**400, None, None), "value=10+ of the tunable lr is not a finite number"),
        (("lr", True, None, None), "value=True of the tunable lr"),
        (("lr", "1", None, None), "value='1' of the tunable lr"),
        (("lr", 1.0, 2, None), "lr must be at least 2, not 1"),
    ],
)
def test_what_makes_no_sense_is_refused(given: Any, expected: str) -> None:
    with pytest.raises(ConfigurationError, match=expected):
        Tunable(*given, None)


def test_a_checkpoint_carries_the_values_also_of_those_that_are_made_later() -> None:
    saved = Tunables()
    saved.add(Tunable("lr", 0.1, None, None, None)).set(0.5)
    saved.add(Tunable("every", 4, None, None, None)).set(8)
    seen: list[float] = []
    loaded = Tunables()
    lr = loaded.add(Tunable("lr", 0.1, None, None, seen.append))
    loaded.load_state_dict(saved.state_dict())
    every = loaded.add(Tunable("every", 4, None, 6, None))
    assert (lr.value, seen) == (0.5, [0.5])
    assert every.value == 4  # the saved one is out of the range of now
    assert loaded.add(Tunable("lr", 0.1, None, None, None)).value == 0.1  # another run in the same process
