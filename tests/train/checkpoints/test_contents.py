"""What a checkpoint holds beside weights: the scaler, gradients of an unfinished accumulation, random states."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from notebook_accel import Accelerator, FullyShardedDataParallelPlugin
from notebook_accel.train.checkpoints.contents import Contents
from notebook_accel.train.checkpoints.layouts.layout import LoadOptions, SaveOptions
from notebook_accel.train.ranks import random_states
from tests.train.conftest import Cases, Ranks


def contents(scaler: Any) -> Contents:
    return Contents(Accelerator(cpu=True).strategy, [], [], [], [], scaler=scaler, step=3)


def test_the_scaler_and_the_step_come_back(tmp_path: Path) -> None:
    contents(torch.amp.GradScaler("cpu", init_scale=8.0)).write(tmp_path, [], SaveOptions())
    scaler = torch.amp.GradScaler("cpu")
    assert contents(scaler).read(tmp_path, [], LoadOptions()) == 3
    assert scaler.get_scale() == 8.0


def test_a_checkpoint_without_a_scaler_warns(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    contents(None).write(tmp_path, [], SaveOptions())
    contents(torch.amp.GradScaler("cpu")).read(tmp_path, [], LoadOptions())
    assert "was saved without a gradient scaler: this one starts from scratch" in caplog.text


def test_a_checkpoint_without_random_states_warns(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    contents(None).write(tmp_path, [], SaveOptions())
    (tmp_path / "random_states_0.pkl").unlink()
    assert contents(None).read(tmp_path, [], LoadOptions()) == 0
    assert "has no random states" in caplog.text


def test_a_rank_that_is_not_the_writer_writes_only_its_own(tmp_path: Path) -> None:
    accelerator = Accelerator(cpu=True)
    model = nn.Linear(2, 2)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters()))
    parts = Contents(accelerator.strategy, [model], [optimizer.optimizer], [], [], scaler=None, step=0)
    parts.write(tmp_path, [model.state_dict()], SaveOptions(writes=False))
    assert [path.name for path in tmp_path.iterdir()] == ["random_states_0.pkl"]


def test_new_ranks_draw_numbers_of_their_own_and_always_the_same() -> None:
    torch.manual_seed(0)
    states = random_states.capture(torch.device("cpu"))
    drawn = []
    for rank in (2, 3, 2):
        random_states.derive(states, rank, torch.device("cpu"))
        drawn.append(torch.rand(1).item())
    random_states.restore(states, torch.device("cpu"))
    assert drawn[0] == drawn[2] != drawn[1]
    assert torch.rand(1).item() not in drawn


class Records(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def in_the_middle(folder: str, fsdp: bool, saves: bool) -> tuple[list[str], list[float] | None]:
    """Saves after the first of two batches, or loads; returns the warnings and the gradient it then has."""
    records = Records()
    logger = logging.getLogger("notebook_accel.train.checkpoints.contents")
    logger.addHandler(records)
    plugin = FullyShardedDataParallelPlugin() if fsdp else None
    accelerator = Accelerator(gradient_accumulation_steps=2, fsdp_plugin=plugin)
    model = nn.Linear(2, 1)
    model, _ = accelerator.prepare(model, torch.optim.SGD(model.parameters()))
    if saves:
        with accelerator.accumulate(model):
            accelerator.backward(model(torch.full((1, 2), 1.0 + accelerator.process_index)).sum())
        accelerator.save_state(folder)
    else:
        accelerator.load_state(folder)
    logger.removeHandler(records)
    gradient = next(iter(model.parameters())).grad
    return records.texts, None if gradient is None or fsdp else gradient.flatten().tolist()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("checkpoints") / "run")


@pytest.fixture(scope="module")
def saved(folder: str) -> Cases:
    """What two ranks save, by whether it is in shards."""
    return Cases({fsdp: (in_the_middle, f"{folder}-{fsdp}", fsdp, True) for fsdp in (False, True)})


def test_gradients_of_an_unfinished_accumulation_come_back_on_each_rank(
    saved: Cases, folder: str, ranks: Ranks
) -> None:
    assert saved[False] == [([], [0.5, 0.5]), ([], [1.0, 1.0])]
    assert ranks(in_the_middle, f"{folder}-False", False, False) == saved[False]


def test_gradients_are_dropped_where_the_ranks_are_others(saved: Cases, folder: str, ranks: Ranks) -> None:
    assert saved[False]
    [(warnings, gradient)] = ranks(in_the_middle, f"{folder}-False", False, False, size=1)
    assert "its gradients are dropped on 1 rank." in warnings[0]
    assert gradient is None


def test_gradients_in_shards_are_not_saved_and_it_warns(saved: Cases) -> None:
    (warnings, _), (others, _) = saved[True]
    assert "Save when accelerator.sync_gradients is true" in warnings[0]
    assert others == []
