"""What the loop over `Accelerator.epochs` says before the first step, and what it leaves alone."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from notebook_accel import Accelerator, CheckpointError, ConfigurationError, DataLoaderConfiguration, set_seed


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NOTEBOOK_ACCEL_CHECKPOINT_DIR", str(tmp_path))
    return tmp_path


def begin(accelerator: Accelerator, capsys: pytest.CaptureFixture[str]) -> str:
    """What is said by the time of the first step."""
    loop = accelerator.epochs(1)
    assert next(loop) == 0
    return capsys.readouterr().err


def test_without_a_folder_it_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert list(Accelerator(cpu=True).epochs(3)) == [0, 1, 2]
    assert list(tmp_path.iterdir()) == []
    wrong: list[Any] = [-1, "10", 2.5]
    for count in wrong:
        with pytest.raises(ConfigurationError, match=re.escape(f"epochs({count!r}): give the number of epochs")):
            Accelerator(cpu=True).epochs(count)


def test_what_is_prepared_and_can_be_resumed_needs_no_word(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    accelerator, model = Accelerator(cpu=True), nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters())
    other = torch.optim.SGD(nn.Linear(1, 1).parameters())  # of a model that has nothing to do with it
    scheduler = torch.optim.lr_scheduler.SequentialLR(
        optimizer, [torch.optim.lr_scheduler.ConstantLR(optimizer), torch.optim.lr_scheduler.StepLR(optimizer, 1)], [1]
    )
    accelerator.prepare(model, optimizer, scheduler, DataLoader(TensorDataset(torch.zeros(4, 1))))
    assert begin(accelerator, capsys) == ""
    del other


def test_an_epoch_before_prepare_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigurationError, match="nothing has been prepared: call prepare"):
        next(Accelerator(cpu=True).epochs(1))


def test_a_second_loop_is_refused(folder: Path) -> None:
    accelerator = Accelerator(cpu=True)
    accelerator.prepare(nn.Linear(1, 1))
    assert list(accelerator.epochs(2)) == [0, 1]
    with pytest.raises(ConfigurationError, match="saves a single loop"):
        accelerator.epochs(2)


def test_optimizers_and_schedulers_that_are_not_prepared_are_named(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    accelerator, model = Accelerator(cpu=True), nn.Linear(1, 1)
    kept = torch.optim.SGD(model.parameters())
    forgotten = torch.optim.Adam(model.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(kept, 1)
    accelerator.prepare(model, kept)
    said = begin(accelerator, capsys)
    assert "an optimizer (Adam) of a prepared model is not prepared" in said
    assert "a scheduler (StepLR) of a prepared optimizer is not prepared" in said
    del forgotten, scheduler


class Stream(IterableDataset[int]):
    def __iter__(self) -> Any:
        return iter(range(4))


def test_the_position_in_an_iterable_dataset_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for own_generator, workers in ((False, 0), (False, 1), (True, 0)):
        accelerator, stream = Accelerator(cpu=True), Stream()
        if own_generator:
            stream.generator = torch.Generator()  # type: ignore[attr-defined]
        accelerator.prepare(nn.Linear(1, 1), DataLoader(stream, num_workers=workers))
        said = begin(accelerator, capsys)
        assert "loader 0 reads an iterable dataset" in said
        differ = not own_generator and not workers
        assert ("If it draws random numbers from a global generator" in said) == differ


def test_hooks_and_uneven_batches_are_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(even_batches=False))
    accelerator.prepare(nn.Linear(1, 1))
    accelerator.register_save_state_pre_hook(lambda models, weights, folder: None)
    said = begin(accelerator, capsys)
    assert "hooks that are registered for save_state and load_state are not called" in said
    assert "only the ends of epochs are saved" in said


def test_a_loop_whose_steps_are_not_counted_says_so(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    accelerator = Accelerator(cpu=True)
    model = accelerator.prepare(nn.Linear(1, 1))
    for _ in accelerator.epochs(2):
        model(torch.ones(1, 1)).sum().backward()
    assert capsys.readouterr().err.count("no step of this epoch was counted") == 1


def train_on(counts: tuple[int, ...], stops_after: int | None = None, epochs: int = 2, batch_size: int = 4) -> int:
    """Trains on the first of so many loaders with so many samples, to the end or so many steps; returns the steps."""
    set_seed(3)
    accelerator, model = Accelerator(cpu=True), nn.Linear(1, 1)
    loaders = [DataLoader(TensorDataset(torch.zeros(count, 1)), batch_size, shuffle=True) for count in counts]
    model, optimizer, loader, *_ = accelerator.prepare(model, torch.optim.SGD(model.parameters()), *loaders)
    steps = 0
    for _ in accelerator.epochs(epochs):
        for (inputs,) in loader:
            accelerator.backward(model(inputs).sum())
            optimizer.step()
            steps += 1
            if steps == stops_after:
                return steps
    return steps


@pytest.mark.parametrize(("now", "steps"), [(40, 10 - 2 + 10), (8, 0 + 2), (4, 0 + 1)])
def test_an_epoch_that_continues_with_other_data_says_so(
    now: int, steps: int, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NOTEBOOK_ACCEL_CHECKPOINT_EVERY", "2")
    train_on((32,), stops_after=4)
    capsys.readouterr()
    assert train_on((now,)) == steps
    assert (
        "WARNING: loader 0 had 32 samples when the checkpoint was saved in the middle of an epoch, "
        f"and has {now} now. The rest of this epoch leaves out as many batches as were done."
    ) in capsys.readouterr().err


def test_between_epochs_loaders_and_their_data_may_change(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NOTEBOOK_ACCEL_CHECKPOINT_EVERY", "1000")
    train_on((32, 8), epochs=1)
    assert train_on((40,)) == 10
    assert train_on((16, 8, 4), epochs=3) == 4
    assert "WARNING" not in capsys.readouterr().err


def test_an_epoch_continues_in_the_loader_that_was_trained_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NOTEBOOK_ACCEL_CHECKPOINT_EVERY", "2")
    train_on((32,), stops_after=4)
    capsys.readouterr()
    assert train_on((32, 8), stops_after=3) == 3
    assert (
        "saved in the middle of an epoch with 1 loader prepared, and now 2 are. They are told apart by their order: "
        "loader 0 continues, counted from 0, and the others start over"
    ) in capsys.readouterr().err
    assert train_on((32, 8), stops_after=1) == 1
    assert "WARNING" not in capsys.readouterr().err


def test_an_epoch_whose_loader_is_not_prepared_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTEBOOK_ACCEL_CHECKPOINT_EVERY", "2")
    train_on((32,), stops_after=4)
    accelerator, model = Accelerator(cpu=True), nn.Linear(1, 1)
    accelerator.prepare(model, torch.optim.SGD(model.parameters()))
    with pytest.raises(CheckpointError, match="with 1 loader prepared, and now 0 are, so that the position in loader "):
        next(accelerator.epochs(2))
