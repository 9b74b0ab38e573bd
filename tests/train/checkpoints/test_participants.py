"""Checkpoints that rank 0 saves without waiting, and to which each other rank that calls adds its part."""

from __future__ import annotations

import logging
import logging.handlers
import time
import unittest.mock
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from notebook_accel.train.accelerator.accelerator import Accelerator
from notebook_accel.train.checkpoints import checkpoint, contents
from notebook_accel.train.options.plugins import ProjectConfiguration
from notebook_accel.train.ranks.state import PartialState
from tests.train.conftest import Cases

OF_RANK_0 = ["model.safetensors", "optimizer.bin", "random_states_0.pkl"]
OF_BOTH = [*OF_RANK_0, "random_states_1.pkl"]


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


def files(folder: str | Path) -> list[str]:
    return sorted(path.name for path in Path(folder).iterdir())


def wait_for(path: str) -> None:
    while not Path(path).exists():
        time.sleep(0.01)


def logged(*modules: Any) -> Callable[[], list[str]]:
    """Keeps what these modules log from now on, on this rank; returns a function that returns it."""
    kept = logging.handlers.BufferingHandler(100)
    for module in modules:
        logging.getLogger(module.__name__).addHandler(kept)
    return lambda: [record.getMessage() for record in kept.buffer if record.levelno >= logging.WARNING]


def saved_by_rank_0(folder: str) -> tuple[list[float], list[float], list[str]]:
    """Three checkpoints in a loop, and what is trained from the second."""
    accelerator, model, optimizer = prepared()
    for number in range(3):
        step(accelerator, model, optimizer)
        if accelerator.is_main_process:
            accelerator.save_state(f"{folder}/{number}")
    trained = accelerator.unwrap_model(model).weight.tolist()
    warnings = logged(contents)
    accelerator.load_state(f"{folder}/1")
    step(accelerator, model, optimizer)
    return trained, accelerator.unwrap_model(model).weight.tolist(), warnings()


def test_rank_0_saves_alone_and_all_ranks_load(on_two: Cases, folder: Path) -> None:
    first, second = on_two[saved_by_rank_0]
    assert first[:2] == second[:2]
    assert first[0] == first[1]
    for number in "012":
        assert files(folder / "saved_by_rank_0" / number) == OF_RANK_0


def test_the_ranks_whose_states_a_checkpoint_lacks_are_named_where_it_is_loaded(on_two: Cases) -> None:
    (message,), others = (warnings for *_, warnings in on_two[saved_by_rank_0])
    assert "1 has no part of rank 1, which did not call save_state" in message
    assert others == []


def numbered_by_rank_0(folder: str) -> str:
    accelerator, *_ = prepared(project_config=ProjectConfiguration(folder, automatic_checkpoint_naming=True))
    found = ""
    if accelerator.is_main_process:
        found = f"{accelerator.save_state()}{accelerator.save_state()}"
    accelerator.wait_for_everyone()
    return found


def test_it_counts_alone(on_two: Cases, folder: Path) -> None:
    found, _ = on_two[numbered_by_rank_0]
    checkpoints = folder / "numbered_by_rank_0" / "checkpoints"
    assert found == "".join(str(checkpoints / f"checkpoint_{number}") for number in range(2))


def late(folder: str) -> list[Any]:
    """Rank 1 comes once rank 0 has saved, and draws other numbers before."""
    accelerator, model, optimizer = prepared()
    step(accelerator, model, optimizer)
    torch.manual_seed(accelerator.process_index)
    if not accelerator.is_main_process:
        wait_for(f"{folder}/done")
    saved = accelerator.save_state(f"{folder}/state")
    Path(folder, "done").touch()
    accelerator.wait_for_everyone()
    expected = torch.rand(1)
    warnings = logged(contents)
    accelerator.load_state(saved)
    return [saved, files(saved), torch.equal(torch.rand(1), expected), warnings()]


def test_a_rank_that_comes_late_adds_its_part(on_two: Cases, folder: Path) -> None:
    assert on_two[late] == [[folder / "late" / "state", OF_BOTH, True, []]] * 2


def early(folder: str) -> list[list[str]]:
    """Rank 1 calls before rank 0, which has saved alone to the same folder after an earlier step."""
    accelerator, model, optimizer = prepared()

    def pause(seconds: float, sleep: Callable[[float], None] = time.sleep) -> None:
        Path(folder, "waits").touch()  # rank 1 has looked for a save, and found none
        sleep(seconds)

    found = []
    for _ in range(2):
        step(accelerator, model, optimizer)
        if accelerator.is_main_process:
            accelerator.save_state(f"{folder}/state")
        step(accelerator, model, optimizer)
        if accelerator.is_main_process:
            wait_for(f"{folder}/waits")
            accelerator.save_state(f"{folder}/state")
        else:
            with unittest.mock.patch("time.sleep", pause):
                accelerator.save_state(f"{folder}/state")
        accelerator.wait_for_everyone()
        found.append(files(f"{folder}/state"))
        Path(folder, "waits").unlink(missing_ok=True)
    return found


def test_a_rank_takes_part_in_the_save_after_the_same_step(on_two: Cases) -> None:
    assert on_two[early] == [[OF_BOTH] * 2] * 2


def uneven(folder: str) -> list[str]:
    """All save once they have made different numbers of steps, together."""
    accelerator, model, optimizer = prepared()
    with accelerator.join_uneven_inputs([model]):
        for _ in range(1 + accelerator.process_index):
            step(accelerator, model, optimizer)
    accelerator.save_state(f"{folder}/state")
    accelerator.wait_for_everyone()
    return files(f"{folder}/state")


def test_ranks_that_ran_out_of_batches_take_part_too(on_two: Cases) -> None:
    assert on_two[uneven] == [OF_BOTH] * 2


def best_and_last(folder: str) -> list[Any]:
    """Rank 0 saves alone, and then with the other, after the same step."""
    accelerator, model, optimizer = prepared()
    step(accelerator, model, optimizer)
    warnings = logged(checkpoint)
    if accelerator.is_main_process:
        accelerator.save_state(f"{folder}/best")
    accelerator.save_state(f"{folder}/last")
    accelerator.wait_for_everyone()
    return [files(f"{folder}/best"), files(f"{folder}/last"), warnings()]


def test_rank_0_may_save_alone_to_one_folder_and_with_the_others_to_another(on_two: Cases) -> None:
    assert on_two[best_and_last] == [[OF_RANK_0, OF_BOTH, []]] * 2


def of_another_save(folder: str) -> list[str]:
    """The part of rank 1 that is in the folder belongs to an earlier save."""
    accelerator, model, optimizer = prepared()
    accelerator.save_state(folder)
    accelerator.wait_for_everyone()
    step(accelerator, model, optimizer)
    old = Path(folder, "random_states_1.pkl").read_bytes()
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        accelerator.save_state(folder)
        Path(folder, "random_states_1.pkl").write_bytes(old)
    accelerator.wait_for_everyone()
    warnings = logged(contents)
    accelerator.load_state(folder)
    return warnings()


def test_a_part_of_another_save_is_not_taken_for_one_of_this(on_two: Cases) -> None:
    (message,), others = on_two[of_another_save]
    assert "has no part of rank 1" in message
    assert others == []


def with_gradients(folder: str) -> tuple[list[str], bool]:
    """Rank 0 saves alone in the middle of an accumulation."""
    accelerator, model, _ = prepared(gradient_accumulation_steps=2)
    with accelerator.accumulate(model):
        accelerator.backward(model(torch.ones(2, 2)).sum())
        if accelerator.is_main_process:
            accelerator.save_state(folder)
    model.zero_grad()
    warnings = logged(contents)
    accelerator.load_state(folder)
    return [message.partition(" its gradients")[2] for message in warnings()], model.module.weight.grad is None


def test_gradients_that_not_all_ranks_have_saved_are_dropped_on_all(on_two: Cases) -> None:
    first, second = on_two[with_gradients]
    assert first[0][0] == " are dropped on 2 ranks."
    assert (first[1], second) == (True, ([], True))


def moved(folder: str) -> list[str]:
    """Rank 0 moves the checkpoint before rank 1 has added its part."""
    accelerator, *_ = prepared()
    warnings = logged(checkpoint)
    if not accelerator.is_main_process:
        wait_for(f"{folder}/moved")
    accelerator.save_state(f"{folder}/state")
    if accelerator.is_main_process:
        Path(folder, "state").rename(Path(folder, "moved"))
    accelerator.wait_for_everyone()
    return warnings()


def test_a_folder_that_is_moved_too_early_is_said_to_lack_a_part(on_two: Cases, folder: Path) -> None:
    first, (message,) = on_two[moved]
    assert first == []
    assert "Rank 1 could not add its random states to" in message
    assert files(folder / "moved") == ["moved"]


class Unreadable:
    """What only rank 0 saves can't be saved."""

    def state_dict(self) -> dict[str, Any]:
        raise KeyError("mine")

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


def fails(folder: str) -> str:
    accelerator, *_ = prepared()
    accelerator.register_for_checkpointing(Unreadable())
    try:
        accelerator.save_state(f"{folder}/state")
    except Exception as raised:
        return f"{type(raised).__name__}: {raised}"
    return ""


def test_what_rank_0_cannot_save_is_an_error_of_each_rank_that_calls(on_two: Cases, folder: Path) -> None:
    own = "KeyError: 'mine'"
    assert on_two[fails] == [own, f"CheckpointError: rank 0 could not write the checkpoint: {own}"]
    assert files(folder / "fails") == []


def gone_on(folder: str) -> str:
    """Rank 1 saves after a step after which rank 0 doesn't."""
    accelerator, model, optimizer = prepared()
    error = ""
    step(accelerator, model, optimizer)
    if not accelerator.is_main_process:
        wait_for(f"{folder}/later")
        try:
            accelerator.save_state(f"{folder}/state")
        except Exception as raised:
            error = str(raised)
    else:
        optimizer.step()
        accelerator.save_state(f"{folder}/later")
    accelerator.wait_for_everyone()
    if not accelerator.is_main_process:
        optimizer.step()
    return error


def test_a_rank_that_saves_where_rank_0_did_not_is_told(on_two: Cases) -> None:
    first, second = on_two[gone_on]
    assert first == ""
    assert "this rank has called save_state after" in second


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("participants")


@pytest.fixture(scope="module")
def on_two(folder: Path) -> Cases:
    """What two ranks do in these tests, each in a folder of its own."""
    calls: list[Callable[..., Any]] = [
        saved_by_rank_0,
        numbered_by_rank_0,
        late,
        early,
        uneven,
        best_and_last,
        of_another_save,
        with_gradients,
        moved,
        fails,
        gone_on,
    ]
    for call in calls:
        (folder / call.__name__).mkdir()
    return Cases({call: (call, str(folder / call.__name__)) for call in calls})


@pytest.mark.parametrize("times", [1, 2])
def test_a_single_rank_waits_for_nobody(times: int, tmp_path: Path) -> None:
    accelerator, *_ = prepared()
    assert not PartialState().use_distributed
    for _ in range(times):
        accelerator.save_state(str(tmp_path / "state"))
    assert (tmp_path / "state" / "model.safetensors").is_file()
