"""What a job remembers of its launch."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest

from notebook_accel.launch.plan import run_facts

pytestmark = pytest.mark.smoke


class Net:
    def __repr__(self) -> str:
        raise AssertionError("its own text may take long")


def test_a_call_reads_as_it_was_written_but_for_objects() -> None:
    text = run_facts.call("train", (3, "digits", Net()), {"lr": 0.1, "data": np.zeros((2, 3)), "sizes": [1, [Net()]]})
    assert text == "train(3, 'digits', <Net>, lr=0.1, data=<ndarray 2×3>, sizes=[1, [<Net>]])"


def test_arguments_have_the_names_of_their_parameters_and_the_others_their_defaults() -> None:
    def train(lr: float, width: int = 64, *rest: int, net: object = None, **options: str) -> None: ...

    found = run_facts.arguments(train, (0.1,), {"net": Net(), "mode": "fast"})
    assert found == {"lr": "0.1", "width": "64", "rest": "()", "net": "<Net>", "mode": "'fast'"}
    assert run_facts.arguments(train, (), {}) == {}, "a call that fails on the ranks"


def test_a_long_call_is_cut() -> None:
    assert len(run_facts.call("train", ["x" * 50] * 100, {})) == 500
    assert run_facts.call("train", ([0] * 1000,), {}) == "train([0, 0, 0, 0, 0, 0, ...])"


def test_versions_are_those_that_are_installed() -> None:
    assert run_facts.versions().startswith("Python 3.")
    assert ("torch " in run_facts.versions()) == (find_spec("torch") is not None)
