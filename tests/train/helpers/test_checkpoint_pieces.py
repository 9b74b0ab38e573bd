"""Checkpoints that are written and read piece by piece are those of `save_state` and `load_state`."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from notebook_accel import Accelerator, FullyShardedDataParallelPlugin
from notebook_accel.checkpointing import (
    load_accelerator_state,
    load_custom_state,
    save_accelerator_state,
    save_custom_state,
)
from notebook_accel.errors import CheckpointError, ConfigurationError
from notebook_accel.utils import load_fsdp_model, load_fsdp_optimizer, save_fsdp_model, save_fsdp_optimizer
from tests.train.conftest import Cases

PLUGINS = {
    "sharded": lambda: FullyShardedDataParallelPlugin(),
    "gathered": lambda: FullyShardedDataParallelPlugin(state_dict_type="FULL_STATE_DICT"),
    "whole": lambda: None,
}


def prepared(accelerator: Accelerator, *seeds: int) -> list[tuple[nn.Module, Any]]:
    """Models and their optimizers, each after a step."""
    found = []
    for seed in seeds:
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2))
        found.append(accelerator.prepare(model, torch.optim.AdamW(model.parameters(), 0.1)))
    for model, optimizer in found:
        accelerator.backward(model(torch.randn(3, 4)).sum())
        optimizer.step()
        optimizer.zero_grad()
    return found


def state(accelerator: Accelerator, model: nn.Module, optimizer: Any) -> list[Any]:
    """What this rank holds of both."""
    weights = [getattr(each, "full_tensor", lambda each=each: each)().tolist() for each in model.state_dict().values()]
    moments = [
        getattr(each["exp_avg"], "full_tensor", lambda each=each: each["exp_avg"])().tolist()
        for each in optimizer.state.values()
    ]
    return [weights, moments]


def continued(kind: str, folder: str) -> list[bool]:
    """Whether what is read is what was written: by the pieces, and by `load_state` from them."""
    accelerator = Accelerator(cpu=True, fsdp_plugin=PLUGINS[kind]())
    plugin, path = accelerator.state.fsdp_plugin, Path(folder)
    first, second, third = prepared(accelerator, 0, 1, 2)
    for index, (model, optimizer) in enumerate((first, second)):
        save_fsdp_model(plugin, accelerator, model, path, index)
        save_fsdp_optimizer(plugin, accelerator, optimizer, model, path, index)
    expected, (model, optimizer) = state(accelerator, *second), third
    differs = state(accelerator, *third) != expected
    load_fsdp_model(plugin, accelerator, model, path / ("pytorch_model_fsdp_1" if kind == "sharded" else ""), 1)
    load_fsdp_optimizer(plugin, accelerator, optimizer, model, path, 1)
    found = state(accelerator, *third) == expected
    accelerator.save_state(path / "whole")
    missing = {each.name for each in (path / "whole").glob("*_1*")} - {each.name for each in path.iterdir()}
    try:
        load_fsdp_model(plugin, accelerator, model, path, 2)
    except CheckpointError:
        return [differs, found, missing <= {"random_states_1.pkl"}]
    return []


@pytest.fixture(scope="module")
def on_two(tmp_path_factory: pytest.TempPathFactory) -> Cases:
    return Cases({kind: (continued, kind, str(tmp_path_factory.mktemp(kind))) for kind in PLUGINS})


@pytest.mark.parametrize("kind", PLUGINS)
def test_pieces_are_read_as_they_were_written_in_the_files_of_a_checkpoint(kind: str, on_two: Cases) -> None:
    """Long: the ranks of all cases run in one launch, which the first one waits for."""
    assert on_two[kind] == [[True, True, True]] * 2


def test_what_the_files_can_not_hold_is_refused(tmp_path: Path) -> None:
    accelerator = Accelerator(cpu=True)
    [(model, optimizer)] = prepared(accelerator, 0)
    with pytest.raises(ConfigurationError, match="adapter_only=True is not supported"):
        save_fsdp_model(None, accelerator, model, tmp_path, adapter_only=True)
    with pytest.raises(ConfigurationError, match="use_dcp=False is not supported"):
        save_fsdp_optimizer(None, accelerator, optimizer, model, tmp_path, use_dcp=False)


class Counter:
    def __init__(self, value: Any = 0) -> None:
        self.value = value

    def state_dict(self) -> dict[str, Any]:
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.value = state["value"]


def test_an_object_of_the_users_is_written_and_read(tmp_path: Path) -> None:
    found = Counter()
    save_custom_state(Counter(3), tmp_path, 1)
    load_custom_state(found, str(tmp_path), 1)
    assert found.value == 3
    with pytest.raises(ConfigurationError, match=r"the state of Counter .registered object 0. contains"):
        save_custom_state(Counter(Counter()), tmp_path)


def test_the_state_of_a_run_is_written_and_read_without_an_accelerator(tmp_path: Path) -> None:
    accelerator = Accelerator(cpu=True)
    [(model, optimizer)] = prepared(accelerator, 0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer.optimizer, 1)
    save_custom_state(Counter(5), tmp_path)
    written = [model.state_dict()]
    assert save_accelerator_state(tmp_path, written, [optimizer], [scheduler], [], 0, 7) == tmp_path
    expected, drawn = state(accelerator, model, optimizer), torch.rand(3)
    [(model, optimizer)] = prepared(accelerator, 1)
    assert load_accelerator_state(tmp_path, [model], [optimizer], [scheduler], [], 0) == {"step": 7}
    assert state(accelerator, model, optimizer) == expected
    assert torch.equal(torch.rand(3), drawn)
    with pytest.raises(ConfigurationError, match="process_index=1 is not this rank"):
        save_accelerator_state(tmp_path, written, [], [], [], 1, 0)
