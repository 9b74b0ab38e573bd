"""Checkpoints of weights in shards, however models and optimizers go together."""

from __future__ import annotations

import io
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from notebook_accel import Accelerator, FullyShardedDataParallelPlugin, TorchTensorParallelPlugin
from notebook_accel.errors import CheckpointError, ConfigurationError, RankError
from tests.train.conftest import Cases, Ranks


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))


def fsdp(**options: Any) -> Accelerator:
    return Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin(**options))


def tensor_parallel() -> Accelerator:
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    return Accelerator(torch_tp_plugin=TorchTensorParallelPlugin(tp_size=2, plan=plan))


def of_each(models: list[nn.Module]) -> list[torch.optim.Optimizer]:
    return [torch.optim.AdamW(model.parameters(), lr=0.1) for model in models]


def of_all(models: list[nn.Module]) -> list[torch.optim.Optimizer]:
    groups = [{"params": list(model.parameters()), "lr": 0.1 / (1 + index)} for index, model in enumerate(models)]
    return [torch.optim.AdamW(groups)]


def of_a_part(models: list[nn.Module]) -> list[torch.optim.Optimizer]:
    return [torch.optim.SGD(models[0][0].parameters(), lr=0.1, momentum=0.9)]  # type: ignore[index]


Case = tuple[Callable[[], Accelerator], int, Callable[[list[nn.Module]], list[torch.optim.Optimizer]]]
CASES: dict[str, Case] = {
    "FSDP2, an optimizer for each of two models": (fsdp, 2, of_each),
    "FSDP2, one optimizer for two models": (fsdp, 2, of_all),
    "FSDP2, an optimizer of a part of the model": (fsdp, 1, of_a_part),
    "FSDP2, parameters on the CPU": (lambda: fsdp(cpu_offload=True), 1, of_each),
    "FSDP2, activations computed again": (
        lambda: fsdp(
            activation_checkpointing=True,
            auto_wrap_policy="transformer_based_wrap",
            transformer_cls_names_to_wrap=["Linear"],
        ),
        1,
        of_each,
    ),
    "tensor parallel": (tensor_parallel, 1, of_each),
}


def train(case: str, folder: str, resume: bool) -> list[dict[str, torch.Tensor]]:
    """Takes three steps, saving after the second; or takes the third after a load."""
    make, count, optimize = CASES[case]
    torch.manual_seed(int(resume))
    accelerator = make()
    models: list[nn.Module] = [net() for _ in range(count)]
    optimizers = optimize(models)
    prepared = accelerator.prepare(*models, *optimizers)
    models, optimizers = list(prepared[:count]), list(prepared[count:])
    if resume:
        accelerator.load_state(folder)
    for step in range(2 if resume else 0, 3):
        inputs = torch.full((3, 4), 1.0 + step)
        accelerator.backward(sum((model(inputs).square().mean() for model in models), torch.zeros(())))
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        if step == 1 and not resume:
            accelerator.save_state(folder)
    states = [accelerator.get_state_dict(model) for model in models]
    return [{name: tensor.clone() for name, tensor in state.items()} for state in states]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the cases save, each in a folder of its own."""
    return tmp_path_factory.mktemp("checkpoints")


@pytest.fixture(scope="module")
def whole(folder: Path) -> Cases:
    return Cases({case: (train, case, str(folder / case), False) for case in CASES})


@pytest.fixture(scope="module")
def resumed(folder: Path) -> Cases:
    return Cases({case: (train, case, str(folder / case), True) for case in CASES})


@pytest.mark.parametrize("case", CASES)
def test_a_run_goes_on_to_the_same_bits(case: str, whole: Cases, resumed: Cases) -> None:
    expected, found = whole[case][0], resumed[case][0]
    assert expected[0]
    for one, other in zip(expected, found, strict=True):
        assert one.keys() == other.keys()
        assert all(torch.equal(one[name], other[name]) for name in one)


class Trap:
    """Leaves a folder behind when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.mark),)


def weight_after_a_step(folder: str, saves: bool, loads: bool) -> list[float]:
    accelerator = fsdp()
    torch.manual_seed(0)
    model = nn.Linear(2, 2)
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=0.1))
    if saves:
        accelerator.save_state(folder)
    for _ in range(1 + loads):
        accelerator.backward(model(torch.ones(1, 2)).square().sum())
        optimizer.step()
        optimizer.zero_grad()
        if loads:
            accelerator.load_state(folder)
            loads = False
    return model.weight.full_tensor().flatten().tolist()


def test_a_checkpoint_before_the_first_step_counts_no_step(ranks: Ranks, tmp_path: Path) -> None:
    calls = ((False, False), (True, False), (False, True))
    undisturbed, saved, loaded = (ranks(weight_after_a_step, str(tmp_path / "0"), *call) for call in calls)
    assert undisturbed == saved == loaded


def test_an_index_that_would_run_code_is_refused(ranks: Ranks, whole: Cases, folder: Path, tmp_path: Path) -> None:
    case = "FSDP2, an optimizer for each of two models"
    assert whole[case]  # saves
    shutil.copytree(folder / case, tmp_path / "run")
    (tmp_path / "run" / "optimizer_1" / ".metadata").write_bytes(pickle.dumps(Trap(tmp_path / "mark")))
    with pytest.raises(RankError, match=r"could not read .*optimizer_1: .*the index of a checkpoint must not contain"):
        ranks(train, case, str(tmp_path / "run"), True)
    assert not (tmp_path / "mark").exists()


def test_an_index_names_only_files_beside_it(whole: Cases, folder: Path, tmp_path: Path) -> None:
    from notebook_accel.train.checkpoints.layouts import merging, safe_reader

    case = "FSDP2, an optimizer for each of two models"
    assert whole[case]  # saves
    model = tmp_path / "model"
    shutil.copytree(folder / case / "pytorch_model_fsdp_0", model)
    assert merging.read(model)
    index = safe_reader.SafeReader(model).read_metadata()
    for info in index.storage_data.values():
        info.relative_path = f"../{info.relative_path}"
    for file in model.glob("*.distcp"):
        file.rename(tmp_path / file.name)
    (model / ".metadata").write_bytes(pickle.dumps(index))
    with pytest.raises(CheckpointError, match=r"must not name '\.\./"):
        merging.read(model)


def test_a_value_that_would_run_code_is_refused(tmp_path: Path) -> None:
    from notebook_accel.train.checkpoints.layouts.safe_reader import (
        SafePlanner,  # it takes a second, in each worker that collects tests
    )

    value = io.BytesIO()
    torch.save({"rate": Trap(tmp_path / "mark")}, value)
    value.seek(0)
    with pytest.raises(ConfigurationError, match="objects that could run code"):
        SafePlanner().load_bytes(None, value)  # type: ignore[arg-type]
    assert not (tmp_path / "mark").exists()


def with_failing_hooks(folder: str) -> list[str]:
    """What this rank reads of hooks that fail on rank 1 only."""
    accelerator = fsdp()
    accelerator.prepare(net())

    def fail(*_: Any) -> None:
        if accelerator.process_index == 1:
            raise ValueError("no")

    accelerator.save_state(folder)
    accelerator.register_save_state_pre_hook(fail)
    accelerator.register_load_state_pre_hook(fail)
    found = []
    for call in (accelerator.save_state, accelerator.load_state):
        try:
            call(folder)
        except (CheckpointError, ValueError) as error:
            found.append(f"{type(error).__name__}: {error}")
    return found


def test_a_hook_that_fails_on_one_rank_fails_on_all(ranks: Ranks, tmp_path: Path) -> None:
    first, second = ranks(with_failing_hooks, str(tmp_path / "run"))
    assert first == [
        "CheckpointError: rank 1 could not run the save hooks: ValueError: no",
        "CheckpointError: rank 1 could not run the load hooks: ValueError: no",
    ]
    assert second == ["ValueError: no", "ValueError: no"]
