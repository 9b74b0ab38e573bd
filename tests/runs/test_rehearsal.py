"""What a rehearsal tells, and how the largest value is found."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from notebook_accel.errors import ConfigurationError
from notebook_accel.runs import rehearsed_call
from notebook_accel.runs.rehearsal import Largest, Rehearsal, Rehearsed, largest
from notebook_accel.runs.rehearsed_call import RehearsedCall


def found(limit: int, up_to: int, at_least: int = 1) -> dict[int, bool]:
    """What is tried where values up to a limit fit."""
    tried: dict[int, bool] = {}
    search = Largest("batch_size", up_to, at_least)
    while (value := search.after(tried)) is not None:
        assert value not in tried
        tried[value] = value <= limit
    return tried


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 40, 63, 64, 500, 1023])
def test_the_largest_is_found_to_within_an_eighth(limit: int) -> None:
    tried = found(limit, 1024)
    fits = max(value for value, fitted in tried.items() if fitted)
    assert fits <= limit <= fits + max(1, fits // 8)
    assert len(tried) < 20


def test_where_all_fit_the_most_is_tried_and_where_none_does_one_is() -> None:
    assert list(found(5000, 1000)) == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000]
    assert found(0, 1000, 8) == {8: False}
    assert found(8, 8, 8) == {8: True}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("b", 0), "up_to=0: it must be at least 1"),
        (("b", 4, 8), "at_least=8: it must be at most 4"),
        (("b", 2.5), "up_to must be a whole number, not 2.5"),
        (("b", True), "up_to must be a whole number, not True"),
        ((3, 4), "takes the name of an argument, such as 'batch_size', not 3"),
    ],
)
def test_what_can_not_be_tried_is_refused(arguments: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        largest(*arguments)


def test_the_verdict_says_what_fits_and_what_is_fastest() -> None:
    gb = 2**30
    rows = [
        Rehearsed({"b": 8}, True, step=0.01, samples_per_second=800, device_peak=2 * gb, device_total=8 * gb),
        Rehearsed(
            {"b": 16}, True, step=0.04, samples_per_second=400, device_peak=6 * gb, device_total=8 * gb, data=0.5
        ),
        Rehearsed({"b": 32}, False, note="CUDA out of memory"),
    ]
    assert Rehearsal("train()", rows).verdict == (
        "train(): fits: b=8, b=16; out of memory: b=32; fastest: b=8, 800 samples per second; b=16 leaves 2.0 GB of "
        "8.0 GB; 50% of a step waits for the loader"
    )
    assert Rehearsal("train()", rows[2:]).verdict == "train(): it runs out of memory"
    assert Rehearsal("train()", rows[:1]).verdict == "train(): it fits; b=8 leaves 6.0 GB of 8.0 GB"
    lines = repr(Rehearsal("train()", rows)).splitlines()
    assert lines[1].split("  ")[0] == "b"
    assert "GPU, at most" in lines[1]
    assert "epoch" not in lines[1], "nothing is known of it"
    assert Rehearsal("train()", rows)._repr_html_().count("<tr") == 4
    frame: Any = Rehearsal("train()", rows).dataframe()
    assert list(frame["fits"]) == [True, True, False]


def test_steps_whose_batches_were_read_ahead_are_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise, a loader whose workers are slow would look faster than it is in a long run."""

    class Loader:
        base_dataloader = SimpleNamespace(num_workers=3, prefetch_factor=2)

        def __len__(self) -> int:
            return 100

    moments = iter([0.0, 0.5, 1.0, 1.5, 11.5, 21.5])
    state = SimpleNamespace(active_dataloader=Loader(), num_steps=2)
    monkeypatch.setattr(rehearsed_call, "gradient_state", lambda: state)
    monkeypatch.setattr(rehearsed_call, "time", SimpleNamespace(perf_counter=lambda: next(moments)))

    def train() -> None:
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))])
        while True:
            optimizer.step()

    found = RehearsedCall(train, 2)()
    assert (found.warm_up, len(found.steps), found.step, found.epoch) == (4, 6, 10.0, 50)
