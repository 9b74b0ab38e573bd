"""The anatomy and the advice of jobs with real ranks."""

import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from notebook_accel import Accelerator, FullyShardedDataParallelPlugin, attach, notebook_launcher
from notebook_accel.launch.job.job import Job

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


def test_a_slow_loader_is_found() -> None:
    """The first launch of the file: it may wait until the fork server has imported torch."""
    job = job_of(train, loading=0.03)
    table = job.anatomy
    assert list(table["rank"]) == [0, 1]
    assert list(table["steps"]) == [STEPS - 1] * 2
    assert all(table["data"] > 0.025)
    assert all(table["samples_per_second"] > 0)
    assert any("of the time waits for data: the loader has 0 workers" in each for each in job.advice)


def test_a_slow_rank_is_found() -> None:
    job = job_of(train, computing=(0.02, 0.08))
    assert any("rank 1 is" in each and "mostly in forward; rank 0 waits for it" in each for each in job.advice)
    table = job.anatomy
    assert table["sync"][0] > table["sync"][1] + 0.03


def test_gradients_that_are_synchronized_too_often_are_found() -> None:
    job = job_of(train, computing=(0.01, 0.02), batches=3)
    assert any(each.startswith("gradients are synchronized 3 times per update") for each in job.advice)


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
