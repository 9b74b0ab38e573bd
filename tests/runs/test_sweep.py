"""Which devices each trial gets, on machines with GPUs that are not there; the ranks themselves use none."""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

import pytest

from notebook_accel import hardware, sweep
from notebook_accel.errors import ConfigurationError, HardwareError
from notebook_accel.hardware.nvidia import NvmlProbe
from tests.hardware.fakes import FakeGpu, FakeNvml


@pytest.fixture(autouse=True)
def four_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    found = hardware.detect({}, NvmlProbe(lambda: FakeNvml([FakeGpu("NVIDIA H100", 80 << 30)] * 4)))
    monkeypatch.setattr(hardware, "detect", lambda *_: found)


def devices(x: int) -> str:
    return os.environ["CUDA_VISIBLE_DEVICES"]


def given(**options: Any) -> Counter[tuple[str, ...]]:
    """How many of four trials have had these devices."""
    found: list[Any] = sweep(devices, {"x": [1, 2, 3, 4]}, **options).results
    return Counter(tuple(each) for each in found)


def test_each_trial_has_a_gpu_and_as_many_run_at_once_as_there_are() -> None:
    found = given()
    assert len(found) == 4
    assert all(len(ranks) == 1 for ranks in found)


def test_trials_with_several_gpus_have_as_many_ranks() -> None:
    found = given(gpus_each=2)
    assert all(len(ranks) == 2 and ranks[0] == ranks[1] for ranks in found)
    assert len({gpu for ranks in found for gpu in ranks[0].split(",")}) == 4


def test_only_the_gpus_that_are_named_are_shared_out() -> None:
    named = given(gpus=[1, 3])
    assert len(named) == 2
    assert len(given(gpus=[1, 1])) == 1


def test_too_few_gpus_are_refused() -> None:
    with pytest.raises(HardwareError, match="each trial needs 5 GPUs, but there are 4"):
        given(gpus_each=5)
    with pytest.raises(ConfigurationError, match="at_once=3 trials with 2 GPUs each need 6, but there are 4"):
        given(gpus_each=2, at_once=3)
