"""The anatomy and the advice of jobs with real ranks."""

import os
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from notebook_accel import Accelerator, FullyShardedDataParallelPlugin, attach, notebook_launcher
from notebook_accel.launch.job.job import Job
from notebook_accel.utils import DistributedDataParallelKwargs

SIZE, BATCH, STEPS = 512, 256, 30


class Samples(Dataset[torch.Tensor]):
    """Whole batches at a time, each after a while."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __len__(self) -> int:
        return 2 * BATCH * STEPS

    def __getitems__(self, indices: list[int]) -> list[torch.Tensor]:
        time.sleep(self._seconds)
        return [torch.ones(SIZE)] * len(indices)


class Network(nn.Module):
    """A model whose forward pass takes a while longer on the last rank."""

    def __init__(self, delay: float) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(SIZE, SIZE), nn.ReLU(), nn.Linear(SIZE, 1))
        self._delay = delay

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        time.sleep(self._delay)
        found: torch.Tensor = self.layers(inputs)
        return found


def train(
    loading: float = 0.0, computing: tuple[float, float] = (0.02, 0.02), batches: int = 1, **options: Any
) -> None:
    torch.set_num_threads(1)
    accelerator = Accelerator(**options)
    model = Network(computing[accelerator.process_index])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(Samples(loading), batch_size=BATCH, collate_fn=torch.stack)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for number, inputs in enumerate(loader, 1):
        accelerator.backward(model(inputs).square().mean())
        if number % batches == 0:
            optimizer.step()
            optimizer.zero_grad()


def job_of(function: Callable[..., None], **options: Any) -> Job:
    """A blocking launch's job, as a notebook finds it afterwards."""
    job = notebook_launcher(
        lambda: function(**options), num_processes=2, device="cpu", env={"OMP_NUM_THREADS": "1"}, block=False
    )
    job.result()
    assert attach(job.id).advice == job.advice  # the journal has it too
    return job


def line_of(function: Callable[..., Any], offset: int) -> str:
    """A line of a function, so many below its `def`, as messages name it."""
    code = function.__code__
    return f"{os.path.relpath(code.co_filename)} line {code.co_firstlineno + offset}"


def test_a_slow_loader_is_found() -> None:
    """The first launch of the file: it may wait until the fork server has imported torch."""
    job = job_of(train, loading=0.08)
    table = job.anatomy
    assert list(table["rank"]) == [0, 1]
    assert list(table["steps"]) == [STEPS - 1] * 2
    assert all(table["data"] > 0.07)
    assert all(table["samples_per_second"] > 0)
    (found,) = (each for each in job.advice if "of the time is spent waiting for data" in each)
    assert f", mostly at {line_of(Samples.__getitems__, 1)} (time.sleep(self._seconds)): the loader has 0" in found


def test_a_slow_rank_is_found() -> None:
    job = job_of(train, computing=(0.02, 0.08))
    (found,) = (each for each in job.advice if "rank 1 is" in each)
    line = f"mostly in forward, mostly at {line_of(Network.forward, 1)} (time.sleep(self._delay)); rank 0 waits for it"
    assert line in found
    table = job.anatomy
    assert table["sync"][0] > table["sync"][1] + 0.03


def test_gradients_that_are_synchronized_too_often_are_found() -> None:
    job = job_of(train, computing=(0.01, 0.02), batches=3)
    assert any(each.startswith("gradients are synchronized 3 times per update") for each in job.advice)


def log_often(step: Callable[[], None], calls: int = 60) -> None:
    for _ in range(calls):
        step()
        time.sleep(0.03)


def train_and_log() -> None:
    accelerator = Accelerator()
    model = nn.Linear(8, 1)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))

    def step() -> None:
        accelerator.backward(model(torch.ones(4, 8)).sum())
        optimizer.step()

    log_often(step)


def test_the_line_that_takes_the_time_outside_a_step_is_named() -> None:
    job = job_of(train_and_log)
    (found,) = (each for each in job.advice if "is spent outside the loader" in each)
    assert f", mostly at {line_of(log_often, 3)} (time.sleep(0.03)): don't do this on every step" in found


class Record:
    """A sample that takes long to unpickle."""

    def __reduce__(self) -> tuple[Callable[[], object], tuple[()]]:
        return unpickled, ()


def unpickled() -> Record:
    time.sleep(0.1)
    return Record()


class Records(Dataset[Record]):
    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> Record:
        return Record()


def train_on_records() -> None:
    accelerator = Accelerator()
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(Records(), batch_size=1, num_workers=1, collate_fn=list)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for _ in loader:
        accelerator.backward(model(torch.ones(4, 8)).sum())
        optimizer.step()


def test_batches_that_take_long_to_unpickle_are_found() -> None:
    job = job_of(train_on_records)
    assert any("of which unpickles what the loader's 1 worker sends" in each for each in job.advice), job.advice


def train_and_search(skip: bool) -> None:
    accelerator = Accelerator(kwargs_handlers=[DistributedDataParallelKwargs(find_unused_parameters=True)])
    layers = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8)])
    model = Chosen(layers, skip)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.1))
    for _ in range(15):
        accelerator.backward(model(torch.ones(4, 8)).sum())
        optimizer.step()
        time.sleep(0.02)  # too few milliseconds say nothing


class Chosen(nn.Module):
    """A model that may skip its second layer."""

    def __init__(self, layers: nn.ModuleList, skip: bool) -> None:
        super().__init__()
        self.layers, self._skip = layers, skip

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.layers[0](inputs)
        return found if self._skip else self.layers[1](found)


@pytest.mark.parametrize("skip", [False, True])
def test_a_search_for_unused_parameters_in_vain_is_found(skip: bool) -> None:
    job = job_of(train_and_search, skip=skip)
    found = [each for each in job.advice if "leave out find_unused_parameters=True" in each]
    assert len(found) == (not skip)


@pytest.mark.clock
def test_a_training_that_has_nothing_wrong_gets_no_advice() -> None:
    assert job_of(train, computing=(0.1, 0.1)).advice == []


def test_the_wait_for_gradients_is_measured_with_sharded_models_too() -> None:
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2)
    table = job_of(train, fsdp_plugin=plugin).anatomy
    assert all(table["sync"] > 0)


@pytest.mark.parametrize("name", ["data_share", "sync_share"])
def test_the_shares_are_fractions_of_a_step(name: str) -> None:
    table = job_of(train).anatomy
    shares = [each for each in table.columns if each.rpartition("_")[2] == "share"]
    assert name in shares
    assert table[shares].sum(axis=1).tolist() == pytest.approx([1, 1])
