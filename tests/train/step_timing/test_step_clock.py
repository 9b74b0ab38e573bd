"""What the clock of a rank's steps measures, in this process, compared with torch's profiler."""

import copy
import pickle
from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils.data import DataLoader, TensorDataset

from notebook_accel import Accelerator, events, rank_local
from notebook_accel.events import Event, StepTimes
from notebook_accel.events.emit import STEP_TIMES
from notebook_accel.train.step_timing import PARTS

STEPS = 12


@pytest.fixture
def sent() -> Iterator[list[Event]]:
    """The events of a process that stands for a rank."""
    found: list[Event] = []
    rank_local.space().pop(STEP_TIMES, None)  # of a training run in this process before
    events.set_sink(found.append)
    yield found
    events.set_sink(None)
    rank_local.space().pop(STEP_TIMES, None)


class Recorded(nn.Module):
    """A model that the profiler sees."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        with record_function("forward"):
            found: torch.Tensor = self.layers(inputs)
        return found


def train(accumulation: int = 1, model: nn.Module | None = None, steps: int = STEPS) -> tuple[Accelerator, nn.Module]:
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=accumulation)
    model = model or nn.Linear(512, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = TensorDataset(torch.randn(128 * steps * accumulation, 512))
    model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(data, batch_size=128))
    for (inputs,) in loader:
        with accelerator.accumulate(model):
            loss = model(inputs).square().mean()
            with record_function("backward"):
                accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
    return accelerator, model


def last() -> StepTimes:
    (found,) = events.last_step_times()
    assert isinstance(found, StepTimes)
    return found


@pytest.mark.clock
def test_the_parts_agree_with_torchs_profiler(sent: list[Event]) -> None:
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        train(model=Recorded())
    found = last()
    names = {
        "forward": "forward",
        "backward": "backward",
        "optimizer": "Optimizer.step#SGD.step",
        "data": "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
    }
    # In microseconds; without those of the first step, which ends with the optimizer's first.
    spans = [(each.name, each.time_range.start, each.time_range.end) for each in profiler.events()]
    began = min(end for name, _, end in spans if name == names["optimizer"])
    ended = max(end for name, _, end in spans if name == names["optimizer"])
    for part, name in names.items():
        profiled = sum(end - start for each, start, end in spans if each == name and began <= start <= ended) / 1e6
        assert found.seconds[part] == pytest.approx(profiled, rel=0.05, abs=0.05 * (ended - began) / 1e6), part
    assert sum(found.seconds.values()) == pytest.approx((ended - began) / 1e6, rel=0.05)


def test_the_first_step_is_left_out_and_skipped_steps_belong_to_the_update(sent: list[Event]) -> None:
    train(accumulation=3)
    found = last()
    assert (found.steps, found.measured, found.backwards, found.syncs) == (STEPS - 1, STEPS - 1, 3 * (STEPS - 1), 0)
    assert found.samples == 128 * found.backwards
    assert found.seconds.keys() == {*PARTS}
    assert all(found.seconds[part] > 0 for part in ("data", "forward", "backward", "optimizer", "rest"))


def test_each_call_begins_anew(sent: list[Event]) -> None:
    train()
    assert last().steps == STEPS - 1
    assert events.last_step_times() == []
    train(steps=4)
    assert last().steps == 3


def test_reports_are_few(sent: list[Event]) -> None:
    train(steps=100)
    assert len([event for event in sent if isinstance(event, StepTimes)]) <= 3


def test_an_evaluation_is_no_forward_part(sent: list[Event]) -> None:
    _, model = train(model=Recorded())
    clock = rank_local.space()[STEP_TIMES]
    with torch.no_grad():
        model(torch.randn(4, 512))
        assert clock.part == PARTS.index("rest")


def test_a_prepared_model_can_be_copied_and_pickled_and_an_accelerator_too(sent: list[Event]) -> None:
    accelerator, model = train()
    copy.deepcopy(model)(torch.randn(1, 512))
    pickle.loads(pickle.dumps(model))
    pickle.loads(pickle.dumps(accelerator))


def test_outside_a_launch_nothing_is_measured() -> None:
    train()
    assert STEP_TIMES not in rank_local.space()
