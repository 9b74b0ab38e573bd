"""Profiles of a stretch of training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from notebook_accel import Accelerator, ProfileKwargs
from notebook_accel.errors import ConfigurationError
from tests.train.conftest import Ranks


def multiply() -> torch.Tensor:
    return torch.ones(8, 8) @ torch.ones(8, 8)


def test_a_block_is_profiled() -> None:
    accelerator = Accelerator(cpu=True, kwargs_handlers=[ProfileKwargs(activities=["cpu"], record_shapes=True)])
    with accelerator.profile() as profiler:
        multiply()
    events = {event.key: event for event in profiler.key_averages(group_by_input_shape=True)}
    assert events["aten::mm"].input_shapes == [[8, 8], [8, 8]]


def test_options_can_build_a_profiler_of_their_own() -> None:
    with ProfileKwargs(activities=["cpu"]).build() as profiler:
        multiply()
    assert any(event.key == "aten::mm" for event in profiler.key_averages())


def test_a_schedule_says_which_steps_count() -> None:
    ready: list[int] = []
    handler = ProfileKwargs(
        activities=["cpu"],
        schedule_option={"wait": 1, "warmup": 1, "active": 2, "repeat": 1},
        on_trace_ready=lambda profiler: ready.append(profiler.step_num),
    )
    with Accelerator(cpu=True).profile(handler) as profiler:
        for _ in range(6):
            multiply()
            profiler.step()
    assert ready == [4]


def profile(folder: str) -> None:
    with Accelerator().profile(ProfileKwargs(activities=["cpu"], output_trace_dir=folder)):
        multiply()


def test_each_rank_writes_its_trace(ranks: Ranks, tmp_path: Path) -> None:
    ranks(profile, str(tmp_path / "traces"))
    names = ["profile_0.json", "profile_1.json"]
    assert sorted(path.name for path in (tmp_path / "traces").iterdir()) == names
    for name in names:
        trace: dict[str, Any] = json.loads((tmp_path / "traces" / name).read_text())
        assert any(event.get("name") == "aten::mm" for event in trace["traceEvents"])


def test_a_block_that_fails_writes_nothing(tmp_path: Path) -> None:
    handler = ProfileKwargs(activities=["cpu"], output_trace_dir=str(tmp_path / "traces"))
    with pytest.raises(KeyError), Accelerator(cpu=True).profile(handler):
        raise KeyError
    assert not (tmp_path / "traces").exists()


@pytest.mark.parametrize(
    ("activity", "message"),
    [
        ("gpu", "choose from cpu, cuda, xpu"),
        pytest.param(
            "cuda", "no effect", marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
        ),
    ],
)
def test_an_activity_that_is_not_there_is_refused(activity: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Accelerator(cpu=True).profile(ProfileKwargs(activities=[activity]))
