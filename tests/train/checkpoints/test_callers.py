"""Checkpoints that rank 0 saves alone, as scripts for Accelerate do in `if accelerator.is_main_process:`."""

from __future__ import annotations

import logging
import logging.handlers
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from notebook_accel.train.accelerator.accelerator import Accelerator
from notebook_accel.train.checkpoints import callers
from notebook_accel.train.options.plugins import ProjectConfiguration
from notebook_accel.train.ranks.state import PartialState
from tests.train.conftest import Ranks


def prepared(**options: Any) -> tuple[Accelerator, Any, Any]:
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True, **options)
    model = nn.Linear(2, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    return (accelerator, *accelerator.prepare(model, optimizer))


def step(accelerator: Accelerator, model: Any, optimizer: Any) -> None:
    accelerator.backward(model(torch.ones(2, 2)).sum())
    optimizer.step()
    optimizer.zero_grad()


def saved_by_rank_0(folder: str) -> tuple[list[float], list[float]]:
    """Three checkpoints in a loop, and what is trained from the second."""
    callers.FIRST_WAIT_S = 0.2
    accelerator, model, optimizer = prepared()
    for number in range(3):
        step(accelerator, model, optimizer)
        if accelerator.is_main_process:
            accelerator.save_state(f"{folder}/{number}")
    trained = accelerator.unwrap_model(model).weight.tolist()
    accelerator.load_state(f"{folder}/1")
    step(accelerator, model, optimizer)
    return trained, accelerator.unwrap_model(model).weight.tolist()


def test_rank_0_saves_alone_and_all_ranks_load(ranks: Ranks, tmp_path: Path) -> None:
    first, second = ranks(saved_by_rank_0, str(tmp_path))
    assert first == second
    assert first[0] == first[1]
    for number in "012":
        assert {path.name for path in (tmp_path / number).iterdir()} == {
            "model.safetensors",
            "optimizer.bin",
            "random_states_0.pkl",
        }


def numbered_by_rank_0(folder: str) -> str:
    callers.FIRST_WAIT_S = 0.2
    accelerator, *_ = prepared(project_config=ProjectConfiguration(folder, automatic_checkpoint_naming=True))
    found = ""
    if accelerator.is_main_process:
        found = f"{accelerator.save_state()}{accelerator.save_state()}"
    accelerator.wait_for_everyone()
    return found


def test_it_counts_alone(ranks: Ranks, tmp_path: Path) -> None:
    found, _ = ranks(numbered_by_rank_0, str(tmp_path))
    assert found == "".join(str(tmp_path / "checkpoints" / f"checkpoint_{number}") for number in range(2))


def late(folder: str) -> tuple[Path, list[str]]:
    """Rank 1 comes once rank 0 has saved alone."""
    callers.FIRST_WAIT_S = 0.2
    accelerator, *_ = prepared()
    while not accelerator.is_main_process and not Path(folder, "done").exists():
        time.sleep(0.01)
    saved = accelerator.save_state(f"{folder}/state")
    Path(folder, "done").touch()
    accelerator.wait_for_everyone()
    return saved, sorted(path.name for path in saved.iterdir())


def test_a_rank_that_comes_late_goes_on_without_saving(ranks: Ranks, tmp_path: Path) -> None:
    files = ["model.safetensors", "optimizer.bin", "random_states_0.pkl"]
    assert ranks(late, str(tmp_path)) == [(tmp_path / "state", files)] * 2


def slow(folder: str) -> list[bool]:
    """All save twice at a line, and rank 1 comes later than rank 0 would wait the first time."""
    accelerator, *_ = prepared()
    found = []
    for number in range(2):
        if number == 1:
            callers.FIRST_WAIT_S = callers.NEXT_WAIT_S = 0.0
            while not accelerator.is_main_process and not Path(folder, "waits").exists():
                time.sleep(0.01)
            Path(folder, "waits").touch()
        accelerator.save_state(f"{folder}/{number}")
        found.append(Path(folder, str(number), "random_states_1.pkl").exists())
    return found


def test_where_all_ranks_have_saved_before_rank_0_waits_for_them(ranks: Ranks, tmp_path: Path) -> None:
    assert ranks(slow, str(tmp_path)) == [[True, True]] * 2


def at_two_lines(folder: str) -> list[str]:
    """Rank 0 saves alone while the others wait for the next; then all do, each at a line of its own."""
    callers.FIRST_WAIT_S = 0.1 if PartialState().is_main_process else 60.0
    accelerator, *_ = prepared()
    if accelerator.is_main_process:
        accelerator.save_state(f"{folder}/alone")
        callers.FIRST_WAIT_S = 60.0
        saved = accelerator.save_state(f"{folder}/together")
    else:
        saved = accelerator.save_state(f"{folder}/together")
    return sorted(path.name for path in Path(saved).glob("random_states_*"))


def test_ranks_may_save_together_at_lines_of_their_own(ranks: Ranks, tmp_path: Path) -> None:
    assert ranks(at_two_lines, str(tmp_path)) == [["random_states_0.pkl", "random_states_1.pkl"]] * 2
    assert not (tmp_path / "alone" / "random_states_1.pkl").exists()


def said(folder: str) -> list[str]:
    kept = logging.handlers.BufferingHandler(100)
    logging.getLogger(callers.__name__).addHandler(kept)
    callers.FIRST_WAIT_S = 0.0
    accelerator, *_ = prepared()
    for number in range(2):
        if accelerator.is_main_process:
            accelerator.save_state(f"{folder}/{number}")
    accelerator.wait_for_everyone()
    return [record.getMessage() for record in kept.buffer]


def test_it_is_said_once_what_is_not_saved(ranks: Ranks, tmp_path: Path) -> None:
    (message,), others = ranks(said, str(tmp_path))
    assert message.startswith(
        "Only rank 0 has called save_state here within 0 s, so it saves without the random states"
    )
    assert others == []


def fails(folder: str) -> str:
    callers.FIRST_WAIT_S = 0.0
    accelerator, *_ = prepared()
    error = ""
    if accelerator.is_main_process:
        Path(folder, "file").touch()
        try:
            accelerator.save_state(f"{folder}/file/state")
        except OSError as raised:
            error = type(raised).__name__
    accelerator.wait_for_everyone()
    return error


def test_a_failure_is_raised_where_it_was_called(ranks: Ranks, tmp_path: Path) -> None:
    assert ranks(fails, str(tmp_path)) == ["NotADirectoryError", ""]


@pytest.mark.parametrize("times", [1, 2])
def test_a_single_rank_waits_for_nobody(times: int, tmp_path: Path) -> None:
    accelerator, *_ = prepared()
    assert not PartialState().use_distributed
    for _ in range(times):
        accelerator.save_state(str(tmp_path / "state"))
    assert (tmp_path / "state" / "model.safetensors").is_file()
