"""Checkpoints: what is in them, who can read them, and what is left when saving fails."""

from __future__ import annotations

import datetime
import os
import shutil
import signal
import unittest.mock
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import accelerate
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from notebook_accel.errors import CheckpointError, ConfigurationError, RankError, UnknownArgumentError
from notebook_accel.train.accelerator.accelerator import Accelerator
from notebook_accel.train.checkpoints import folders, serialization
from notebook_accel.train.options.fsdp import FullyShardedDataParallelPlugin
from notebook_accel.train.options.plugins import DataLoaderConfiguration, ProjectConfiguration
from notebook_accel.train.ranks.communicator import TorchBackend
from notebook_accel.train.ranks.seeds import set_seed
from notebook_accel.train.ranks.state import PartialState
from tests.train.conftest import Cases, Ranks, launch


class Custom:
    """An object of the user's own."""

    def __init__(self, value: Any = 0) -> None:
        self.value = value

    def state_dict(self) -> dict[str, Any]:
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.value = state["value"]


class Setup:
    """Two models, optimizers, schedulers, loaders; one step taken."""

    def __init__(self, accelerator: Any, seed: int = 0, count: int = 2) -> None:
        torch.manual_seed(seed)
        self.accelerator = accelerator
        self.models = [nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)) for _ in range(count)]
        self.optimizers = [torch.optim.Adam(model.parameters(), lr=0.1) for model in self.models]
        self.schedulers = [torch.optim.lr_scheduler.StepLR(each, 1) for each in self.optimizers]
        self.loaders = [DataLoader(TensorDataset(torch.randn(8, 4)), batch_size=2, shuffle=True) for _ in range(count)]
        prepared = accelerator.prepare(*self.models, *self.optimizers, *self.schedulers, *self.loaders)
        parts = (list(prepared[index * count : (index + 1) * count]) for index in range(4))
        self.models, self.optimizers, self.schedulers, self.loaders = parts

    def step(self) -> Setup:
        for model, optimizer, scheduler in zip(self.models, self.optimizers, self.schedulers, strict=True):
            self.accelerator.backward(model(torch.ones(2, 4)).sum())
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        return self

    def values(self) -> list[Any]:
        """Everything that training goes on from."""
        weights = [self.accelerator.get_state_dict(model) for model in self.models]
        moments = [
            [(entry["exp_avg"].tolist(), float(entry["step"])) for entry in each.state_dict()["state"].values()]
            for each in self.optimizers
        ]
        rates = [each.get_last_lr() for each in self.schedulers]
        return [[{name: tensor.tolist() for name, tensor in each.items()} for each in weights], moments, rates]


def everything(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_the_files_have_the_names_that_users_know(tmp_path: Path) -> None:
    setup = Setup(Accelerator(cpu=True)).step()
    setup.accelerator.register_for_checkpointing(Custom(), Custom())
    assert setup.accelerator.save_state(str(tmp_path / "run")) == tmp_path / "run"  # a Path, as from Accelerate
    assert everything(tmp_path / "run") == {
        *("model.safetensors", "model_1.safetensors", "optimizer.bin", "optimizer_1.bin"),
        *("scheduler.bin", "scheduler_1.bin", "dl_state_dict.bin", "dl_state_dict_1.bin"),
        *("random_states_0.pkl", "custom_checkpoint_0.pkl", "custom_checkpoint_1.pkl"),
    }
    setup.accelerator.save_state(tmp_path / "run", safe_serialization=False)
    assert {"pytorch_model.bin", "pytorch_model_1.bin"} < everything(tmp_path / "run")
    assert "model.safetensors" not in everything(tmp_path / "run")


@pytest.mark.parametrize("safe", [True, False])
def test_everything_comes_back(safe: bool, tmp_path: Path) -> None:
    saved = Setup(Accelerator(cpu=True)).step()
    one = Custom(torch.arange(3))
    saved.accelerator.register_for_checkpointing(one)
    saved.accelerator.save_state(tmp_path / "run", safe_serialization=safe)
    drawn = torch.rand(2)
    other = Setup(Accelerator(cpu=True), seed=1)
    two = Custom()
    other.accelerator.register_for_checkpointing(two)
    other.accelerator.load_state(tmp_path / "run")
    assert other.values() == saved.values()
    assert torch.equal(two.value, one.value)
    assert torch.equal(torch.rand(2), drawn)


def test_every_file_is_read_without_running_code(tmp_path: Path) -> None:
    setup = Setup(Accelerator(cpu=True)).step()
    setup.accelerator.register_for_checkpointing(Custom({"a": [1, "b", None], 3: (torch.ones(2),)}))
    setup.accelerator.save_state(tmp_path)
    for path in tmp_path.iterdir():
        if path.suffix != ".safetensors":
            torch.load(path, weights_only=True)


class Trap:
    """Leaves a folder behind when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.mark),)


@pytest.mark.parametrize("name", ["optimizer.bin", "scheduler.bin", "dl_state_dict.bin", "custom_checkpoint_0.pkl"])
def test_a_file_that_would_run_code_is_refused(name: str, tmp_path: Path) -> None:
    setup = Setup(Accelerator(cpu=True), count=1)
    setup.accelerator.register_for_checkpointing(Custom())
    setup.accelerator.save_state(tmp_path / "run")
    torch.save({"state": Trap(tmp_path / "mark")}, tmp_path / "run" / name)
    with pytest.raises(ConfigurationError, match=f"{name} contains objects that could run code"):
        setup.accelerator.load_state(tmp_path / "run")
    assert not (tmp_path / "mark").exists()


def test_objects_that_have_no_state_are_all_named(tmp_path: Path) -> None:
    accelerator = Accelerator()
    with pytest.raises(ConfigurationError, match=r"Item at index 0, a Tensor; Item at index 2, a dict$"):
        accelerator.register_for_checkpointing(torch.ones(1), Custom(), {})
    accelerator.save_state(tmp_path / "saved")
    assert not list((tmp_path / "saved").glob("custom_*"))


# Interchange with Accelerate


def test_accelerate_resumes_from_a_checkpoint_of_ours(tmp_path: Path) -> None:
    ours = Setup(Accelerator(cpu=True)).step()
    ours.accelerator.register_for_checkpointing(Custom(5))
    ours.accelerator.save_state(tmp_path)
    drawn = torch.rand(2)
    theirs = Setup(accelerate.Accelerator(cpu=True), seed=1)
    custom = Custom()
    theirs.accelerator.register_for_checkpointing(custom)
    theirs.accelerator.load_state(str(tmp_path))
    assert torch.equal(torch.rand(2), drawn)
    assert custom.value == 5
    assert theirs.values() == ours.values()
    assert theirs.step().values() == ours.step().values()


@pytest.mark.parametrize("safe", [True, False])
def test_a_run_resumes_from_a_checkpoint_of_accelerate(safe: bool, tmp_path: Path) -> None:
    theirs = Setup(accelerate.Accelerator(cpu=True)).step()
    theirs.accelerator.register_for_checkpointing(Custom(5))
    theirs.accelerator.save_state(str(tmp_path), safe_serialization=safe)
    drawn = torch.rand(2)
    ours = Setup(Accelerator(cpu=True), seed=1)
    custom = Custom()
    ours.accelerator.register_for_checkpointing(custom)
    ours.accelerator.load_state(tmp_path)
    assert torch.equal(torch.rand(2), drawn)
    assert custom.value == 5
    assert ours.values() == theirs.values()
    assert ours.step().values() == theirs.step().values()


def test_weights_that_accelerate_saved_under_ddp_are_understood(tmp_path: Path) -> None:
    theirs = Setup(accelerate.Accelerator(cpu=True)).step()
    theirs.accelerator.save_state(str(tmp_path))
    for index, model in enumerate(theirs.models):
        state = {f"module.{name}": tensor for name, tensor in model.state_dict().items()}
        serialization.save(
            state, tmp_path / ("model_1.safetensors" if index else "model.safetensors"), safe_serialization=True
        )
    ours = Setup(Accelerator(cpu=True), seed=1)
    ours.accelerator.load_state(tmp_path)
    assert ours.values() == theirs.values()


# Names and limits


def numbered(folder: Path, **options: Any) -> Setup:
    project = ProjectConfiguration(str(folder), automatic_checkpoint_naming=True, **options)
    return Setup(Accelerator(cpu=True, project_config=project), count=1)


def test_checkpoints_are_counted_and_the_oldest_removed(tmp_path: Path) -> None:
    setup = numbered(tmp_path, total_limit=2)
    (tmp_path / "checkpoints" / "notes").mkdir(parents=True)
    folders_returned = [setup.accelerator.save_state().name for _ in range(12)]
    assert folders_returned == [f"checkpoint_{number}" for number in range(12)]
    assert everything(tmp_path / "checkpoints") == {"checkpoint_10", "checkpoint_11", "notes"}
    assert setup.accelerator.save_iteration == 12


@pytest.mark.smoke
def test_the_newest_is_loaded_and_counting_goes_on_from_it(tmp_path: Path) -> None:
    setup = numbered(tmp_path)
    for _ in range(11):
        setup.step().accelerator.save_state()
    resumed = numbered(tmp_path)
    resumed.accelerator.load_state()
    assert resumed.values() == setup.values()
    assert resumed.accelerator.save_state().name == "checkpoint_11"


def test_counting_goes_on_after_the_newest_if_an_older_one_is_loaded(tmp_path: Path) -> None:
    setup = numbered(tmp_path)
    for _ in range(3):
        setup.accelerator.save_state()
    setup.accelerator.load_state(tmp_path / "checkpoints" / "checkpoint_1")
    assert setup.accelerator.save_state().name == "checkpoint_3"


def test_a_number_that_is_taken_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    numbered(tmp_path).accelerator.save_state()
    before = (tmp_path / "checkpoints" / "checkpoint_0" / "model.safetensors").stat()
    with pytest.raises(ConfigurationError, match=r"checkpoint_0 already exists: load it to continue from it"):
        numbered(tmp_path).accelerator.save_state()
    assert (tmp_path / "checkpoints" / "checkpoint_0" / "model.safetensors").stat() == before


def test_an_old_one_is_removed_only_when_the_new_one_is_in_place(tmp_path: Path) -> None:
    setup = numbered(tmp_path, total_limit=1)
    setup.accelerator.save_state()
    setup.accelerator.register_for_checkpointing(Custom(datetime.date(2020, 1, 1)))
    with pytest.raises(ConfigurationError):
        setup.accelerator.save_state()
    assert everything(tmp_path / "checkpoints") == {"checkpoint_0"}


# Hooks


def test_hooks_see_the_weights_and_may_keep_them_back(tmp_path: Path) -> None:
    setup = Setup(Accelerator(cpu=True)).step()
    seen: list[Any] = []

    def save(models: list[Any], weights: list[Any], folder: str) -> None:
        seen.append((list(models), [sorted(each) for each in weights]))
        torch.save(weights.pop(), Path(folder) / "mine.bin")

    def load(models: list[Any], folder: str) -> None:
        models.pop().load_state_dict(torch.load(Path(folder) / "mine.bin", weights_only=True))

    handles = [
        setup.accelerator.register_save_state_pre_hook(save),
        setup.accelerator.register_load_state_pre_hook(load),
    ]
    setup.accelerator.save_state(tmp_path / "run")
    assert seen == [(setup.models, [["0.bias", "0.weight", "1.bias", "1.weight"]] * 2)]
    assert {"mine.bin", "model.safetensors"} < everything(tmp_path / "run")
    assert "model_1.safetensors" not in everything(tmp_path / "run")
    expected = setup.values()
    setup.step().accelerator.load_state(tmp_path / "run")
    assert setup.values() == expected
    for handle in handles:
        handle.remove()
    setup.accelerator.save_state(tmp_path / "run")
    assert len(seen) == 1


# What cannot work

REFUSED: dict[str, tuple[Callable[[Setup, Path], object], type[Exception], str]] = {
    "no folder to save to": (lambda s, f: s.accelerator.save_state(), ConfigurationError, "pass output_dir"),
    "no folder to load from": (lambda s, f: s.accelerator.load_state(), ConfigurationError, "pass input_dir"),
    "a folder that is not there": (
        lambda s, f: s.accelerator.load_state(f / "no"),
        ConfigurationError,
        "no such folder",
    ),
    "a folder that is empty": (lambda s, f: s.accelerator.load_state(f), CheckpointError, "has no scheduler.bin"),
    "an object that can't be saved": (
        lambda s, f: s.accelerator.register_for_checkpointing(object()),
        ConfigurationError,
        r"needs the methods state_dict\(\) and load_state_dict",
    ),
    "a state that can't be read back": (
        lambda s, f: (
            s.accelerator.register_for_checkpointing(Custom(datetime.date(2020, 1, 1))),
            s.accelerator.save_state(f / "run"),
        ),
        ConfigurationError,
        r"the state of Custom \(registered object 0\) contains datetime.date",
    ),
    "an argument that nobody knows": (
        lambda s, f: s.accelerator.save_state(f / "run", exclude_frozen_parameters=True),
        UnknownArgumentError,
        "exclude_frozen_parameters",
    ),
    "a place for tensors that is none": (
        lambda s, f: s.accelerator.load_state(f, map_location="gpu"),
        TypeError,
        "must be None, 'cpu' or 'on_device'",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_work_is_refused(name: str, tmp_path: Path) -> None:
    attempt, kind, message = REFUSED[name]
    with pytest.raises(kind, match=message):
        attempt(Setup(Accelerator(cpu=True)), tmp_path)
    assert not list(tmp_path.iterdir())


PROJECTS = {
    "no folder to count in": ({"automatic_checkpoint_naming": True}, "needs a folder to count in"),
    "a limit of nothing": ({"automatic_checkpoint_naming": True, "total_limit": 0}, "keeps no checkpoint"),
}


@pytest.mark.parametrize("name", PROJECTS)
def test_a_project_that_cannot_work_is_refused(name: str) -> None:
    options, message = PROJECTS[name]
    with pytest.raises(ConfigurationError, match=message):
        Accelerator(cpu=True, project_config=ProjectConfiguration(**options)).save_state()


def test_a_folder_given_to_a_numbered_save_is_said_to_have_no_effect(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    accelerator = Accelerator(project_config=ProjectConfiguration(str(tmp_path), automatic_checkpoint_naming=True))
    saved = accelerator.save_state(str(tmp_path / "elsewhere"))
    assert saved == tmp_path / "checkpoints" / "checkpoint_0"
    assert not (tmp_path / "elsewhere").exists()
    assert "output_dir=" in caplog.text
    assert "has no effect with automatic_checkpoint_naming=True" in caplog.text


def test_a_limit_without_counting_is_said_to_have_no_effect(caplog: pytest.LogCaptureFixture) -> None:
    Accelerator(cpu=True, project_config=ProjectConfiguration(total_limit=3))
    assert "total_limit=3 has no effect without automatic_checkpoint_naming=True" in caplog.text


def test_what_a_save_hook_writes_is_in_the_checkpoint_under_the_name_that_users_know(tmp_path: Path) -> None:
    setup = numbered(tmp_path)
    seen = []

    def hook(models: Any, weights: Any, folder: str) -> None:
        seen.append(Path(folder).name)
        Path(folder, "unet").mkdir(parents=True)
        Path(folder, "unet", "extra.txt").write_text("inside")
        Path(folder, "..", "notes.txt").resolve().write_text(f"beside {len(seen)}")
        Path(folder, "..", "plots").mkdir(exist_ok=True)
        Path(folder, "..", "plots", f"{len(seen)}.txt").write_text("plot")

    setup.accelerator.register_save_state_pre_hook(hook)
    saved = [setup.accelerator.save_state() for _ in range(2)]
    assert seen == [path.name for path in saved] == ["checkpoint_0", "checkpoint_1"]
    assert [(path / "unet" / "extra.txt").read_text() for path in saved] == ["inside"] * 2
    assert everything(tmp_path / "checkpoints") == {"checkpoint_0", "checkpoint_1", "notes.txt", "plots"}
    assert (tmp_path / "checkpoints" / "notes.txt").read_text() == "beside 2"
    assert everything(tmp_path / "checkpoints" / "plots") == {"1.txt", "2.txt"}


def test_a_checkpoint_of_less_is_refused_before_anything_is_changed(tmp_path: Path) -> None:
    Setup(Accelerator(cpu=True), count=1).step().accelerator.save_state(tmp_path)
    more = Setup(Accelerator(cpu=True))
    before = more.values()
    with pytest.raises(CheckpointError, match=r"has no scheduler_1\.bin: 2 schedulers are prepared here"):
        more.accelerator.load_state(tmp_path)
    more.accelerator.free_memory()
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    more.accelerator.prepare(*(model, nn.Linear(4, 4)))
    with pytest.raises(CheckpointError, match=r"has no model_1\.safetensors: it was saved with fewer models"):
        more.accelerator.load_state(tmp_path)
    assert before[0][0] == Setup(Accelerator(cpu=True)).values()[0][0]


def test_a_checkpoint_with_other_registered_objects_is_refused(tmp_path: Path) -> None:
    setup = Setup(Accelerator(cpu=True), count=1)
    setup.accelerator.save_state(tmp_path)
    setup.accelerator.register_for_checkpointing(Custom())
    with pytest.raises(CheckpointError, match="the states of 0 registered objects, but this run has registered 1"):
        setup.accelerator.load_state(tmp_path)


def test_the_state_of_another_kind_of_optimizer_is_refused(tmp_path: Path) -> None:
    def accelerator(kind: type[torch.optim.Optimizer]) -> Accelerator:
        made = Accelerator(cpu=True)
        model = nn.Linear(4, 2)
        made.prepare(model, kind(model.parameters(), lr=0.1))  # type: ignore[call-arg]
        return made

    accelerator(torch.optim.AdamW).save_state(tmp_path)
    with pytest.raises(CheckpointError, match=r"another kind of optimizer: it lacks dampening, .*, which SGD needs"):
        accelerator(torch.optim.SGD).load_state(tmp_path)


class OwnOptimizer(torch.optim.Optimizer):
    """One whose defaults are not those that torch adds to its own."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.1, "steps": 0})

    def step(self, closure: Any = None) -> None:
        self.param_groups[0]["steps"] += 1


def test_the_state_of_an_optimizer_of_the_users_own_is_loaded(tmp_path: Path) -> None:
    def prepared() -> tuple[Accelerator, Any]:
        accelerator, model = Accelerator(cpu=True), nn.Linear(4, 2)
        return accelerator, accelerator.prepare(model, OwnOptimizer(model.parameters()))[1]

    accelerator, optimizer = prepared()
    optimizer.optimizer.step()
    accelerator.save_state(tmp_path)
    accelerator, optimizer = prepared()
    for _ in range(2):
        accelerator.load_state(tmp_path)
        assert optimizer.param_groups[0]["steps"] == 1


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    Setup(Accelerator(cpu=True), count=1).accelerator.save_state(tmp_path)
    accelerator = Accelerator(cpu=True)
    accelerator.prepare(nn.Linear(4, 4))
    with pytest.raises(ConfigurationError, match="do not match this model: missing"):
        accelerator.load_state(tmp_path)
    accelerator.load_state(tmp_path, strict=False)


# Several ranks


def save_on(folder: str, fsdp: bool, limit: int | None = None, kind: str | None = None) -> Any:
    set_seed(0)
    project = ProjectConfiguration(folder, automatic_checkpoint_naming=True, total_limit=limit) if limit else None
    plugin = FullyShardedDataParallelPlugin() if fsdp else None
    setup = Setup(Accelerator(fsdp_plugin=plugin, project_config=project), count=1).step()
    torch.manual_seed(setup.accelerator.process_index)
    if plugin is not None:
        plugin.set_state_dict_type(kind)  # as scripts do before they save for the last time
    for _ in range(3 if limit else 1):
        setup.accelerator.save_state(None if limit else folder)
    return resume(setup)


def load_on(folder: str, fsdp: bool) -> Any:
    set_seed(1)
    setup = Setup(Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin() if fsdp else None), seed=1, count=1)
    setup.accelerator.load_state(folder)
    return resume(setup)


def resume(setup: Setup) -> Any:
    """Takes a step, and tells the weights and this rank's next number."""
    model = setup.step().models[0]
    weights = setup.accelerator.get_state_dict(model)
    return {name: tensor.tolist() for name, tensor in weights.items()}, torch.rand(1).item()


KINDS: dict[str, tuple[bool, str | None]] = {
    "DDP": (False, None),
    "FSDP2": (True, None),
    "whole, of DDP": (False, "FULL_STATE_DICT"),
    "whole, of FSDP2": (True, "FULL_STATE_DICT"),
}
"""What is saved: with FSDP or not, and how its states are written."""
LOADED = [(kind, kind == "FSDP2", size) for kind in ("DDP", "FSDP2") for size in (1, 2, 3, 4)]
"""What is loaded: with FSDP or not, and on how many ranks."""
LOADED_WHOLE = [
    ("whole, of FSDP2", True, 3),
    ("whole, of FSDP2", False, 2),
    ("whole, of DDP", True, 2),
    ("whole, of FSDP2", True, 1),
]


@dataclass
class Checkpoints:
    """One of each kind, saved by two ranks."""

    folder: Path
    saved: Cases
    """Also, how often the ranks wait for each other, with FSDP or not."""
    loaded: dict[int, Cases]
    """By the number of ranks; each case is the kind, and whether it is loaded with FSDP."""


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Checkpoints:
    folder = tmp_path_factory.mktemp("checkpoints")
    kinds = {kind: (save_on, str(folder / kind), fsdp, None, how) for kind, (fsdp, how) in KINDS.items()}
    gathers = {("gathers", fsdp): (gathers_of_a_save, str(folder / f"gathers{fsdp}"), fsdp) for fsdp in (False, True)}
    saved = Cases({**kinds, **gathers})
    loaded: dict[int, dict[Any, Any]] = {}
    for kind, fsdp, size in LOADED + LOADED_WHOLE:
        loaded.setdefault(size, {})[kind, fsdp] = (load_on, str(folder / kind), fsdp)
    return Checkpoints(folder, saved, {size: Cases(cases, size=size) for size, cases in loaded.items()})


@pytest.mark.parametrize(("kind", "fsdp", "size"), LOADED)
def test_what_two_ranks_saved_is_loaded_on_any_number(
    kind: str, fsdp: bool, size: int, checkpoints: Checkpoints
) -> None:
    saved, found = checkpoints.saved[kind], checkpoints.loaded[size][kind, fsdp]
    weights, _ = saved[0]
    for loaded, _ in found[:1] if fsdp else found:  # only rank 0 gets the whole of what is in shards
        assert loaded.keys() == weights.keys()
        for name in weights:
            torch.testing.assert_close(torch.tensor(loaded[name]), torch.tensor(weights[name]), rtol=0, atol=1e-6)
    drawn = [number for _, number in found]
    assert drawn[:2] == [number for _, number in saved][:size]
    assert len(set(drawn)) == size, "ranks draw the same numbers"


def gathers_of_a_save(folder: str, fsdp: bool) -> int:
    """How often the ranks wait for each other's texts, apart from what torch exchanges about shards."""
    fsdp_plugin = FullyShardedDataParallelPlugin() if fsdp else None
    accelerator = Accelerator(fsdp_plugin=fsdp_plugin, project_config=ProjectConfiguration(save_on_each_node=not fsdp))
    Setup(accelerator, count=1)
    gather = TorchBackend.all_gather_objects
    with unittest.mock.patch.object(TorchBackend, "all_gather_objects", autospec=True, side_effect=gather) as gathers:
        accelerator.save_state(folder)
    return gathers.call_count


def test_ranks_that_save_together_wait_for_each_other_twice(checkpoints: Checkpoints) -> None:
    assert [checkpoints.saved["gathers", fsdp] for fsdp in (False, True)] == [[2, 2]] * 2


def saved_by_each(folder: str) -> None:
    rank = PartialState().process_index
    for on_each_node in (False, True):
        serialization.save({"rank": rank}, Path(folder) / f"{on_each_node}-{rank}", save_on_each_node=on_each_node)


def test_one_rank_writes_a_file(ranks: Ranks, tmp_path: Path) -> None:
    ranks(saved_by_each, str(tmp_path))
    assert everything(tmp_path) == {"False-0", "True-0"}


def seen_by_hooks(folder: str) -> list[Any]:
    accelerator = Accelerator(cpu=True)
    accelerator.prepare(nn.Linear(2, 2))
    seen: list[Any] = []
    accelerator.register_save_state_pre_hook(
        lambda models, weights, _: seen.append((type(models[0]), sorted(weights[0])))
    )
    accelerator.register_load_state_pre_hook(lambda models, _: seen.append(type(models.pop())))
    accelerator.save_state(folder)
    accelerator.load_state(folder)
    return seen


def test_hooks_get_models_without_the_wrapper_of_ddp(ranks: Ranks, tmp_path: Path) -> None:
    assert ranks(seen_by_hooks, str(tmp_path)) == [[(nn.Linear, ["bias", "weight"]), nn.Linear]] * 2


def test_ddp_says_that_it_cannot_read_shards(checkpoints: Checkpoints, ranks: Ranks) -> None:
    assert checkpoints.saved["FSDP2"]  # saves
    with pytest.raises(RankError) as refused:
        ranks(load_on, str(checkpoints.folder / "FSDP2"), False)
    message = "its weights are sharded, as FSDP saves them, but here every rank holds all weights"
    assert message in str(refused.value)
    assert isinstance(refused.value.__cause__, CheckpointError)


@pytest.mark.parametrize(("kind", "fsdp", "size"), LOADED_WHOLE)
def test_whole_states_are_loaded_whole_or_in_shards(kind: str, fsdp: bool, size: int, checkpoints: Checkpoints) -> None:
    expected, _ = checkpoints.saved[kind][0]
    assert {"model.safetensors", "optimizer.bin"} < everything(checkpoints.folder / kind)
    found, _ = checkpoints.loaded[size][kind, fsdp][0]
    assert found.keys() == expected.keys()
    for name in expected:
        torch.testing.assert_close(torch.tensor(found[name]), torch.tensor(expected[name]), rtol=0, atol=1e-6)


def test_ranks_count_and_remove_checkpoints_together(on_two: Cases, folder: Path) -> None:
    assert on_two["counted"]  # saves
    found = folder / "counted" / "checkpoints"
    assert everything(found) == {"checkpoint_1", "checkpoint_2"}
    assert {"random_states_0.pkl", "random_states_1.pkl"} < everything(found / "checkpoint_2")


def save_and_load_where_each_rank_says(folder: str) -> list[Any]:
    accelerator = Accelerator()
    own = f"{folder}/as rank {accelerator.process_index} has it"
    setup = Setup(accelerator).step()
    expected = setup.values()
    returned = accelerator.save_state(own)
    setup.step()
    accelerator.load_state(own)
    return [Path(returned).name, setup.values() == expected]


def test_ranks_that_name_several_folders_take_that_of_the_first(on_two: Cases, folder: Path) -> None:
    assert on_two["named"] == [["as rank 0 has it", True]] * 2
    assert everything(folder / "named") == {"as rank 0 has it"}
    assert "dl_state_dict_rank1.bin" in everything(folder / "named" / "as rank 0 has it")


class Strides(IterableDataset[torch.Tensor]):
    """0, `stride`, 2 `stride`, …; it knows where it is."""

    def __init__(self, stride: int) -> None:
        self.stride = stride
        self.next = 0

    def __iter__(self) -> Iterator[torch.Tensor]:
        while self.next < 12 * self.stride:
            self.next += self.stride
            yield torch.tensor(self.next - self.stride)

    def state_dict(self) -> dict[str, int]:
        return {"next": self.next}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.next = state["next"]


def read_on(folder: str) -> list[list[int]]:
    """This rank's second batch, of the run that saves after the first and of one that goes on from there."""
    config = DataLoaderConfiguration(dispatch_batches=False, use_stateful_dataloader=True)
    accelerator = Accelerator(dataloader_config=config)

    def loader() -> Any:
        return accelerator.prepare(DataLoader(Strides(1 + 10 * accelerator.process_index), batch_size=2))

    batches = iter(loader())
    next(batches)
    accelerator.save_state(folder)
    expected = next(batches)
    accelerator.free_memory()
    resumed = loader()
    accelerator.load_state(folder)
    return [expected.tolist(), next(iter(resumed)).tolist()]


def test_each_rank_goes_on_where_its_own_loader_was(on_two: Cases) -> None:
    first, second = on_two["read on"]
    assert first == [[4, 5]] * 2
    assert second == [[66, 77]] * 2


def fail_on_one(folder: str, rank: int, together: bool) -> str:
    """`together` says whether no rank saves without the others."""
    accelerator = Accelerator(project_config=ProjectConfiguration(save_on_each_node=together))
    setup = Setup(accelerator, count=1)
    if accelerator.process_index == rank:

        def full(*args: Any) -> None:
            raise OSError(28, "No space left on device")

        accelerator.register_save_state_pre_hook(full)
    try:
        setup.accelerator.save_state(folder)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "saved"


@pytest.mark.parametrize(("rank", "together"), [(0, False), (0, True), (1, True)])
def test_what_fails_on_one_rank_fails_on_all_and_leaves_nothing(
    rank: int, together: bool, on_two: Cases, folder: Path
) -> None:
    texts = on_two["full", rank, together]
    own = "OSError: [Errno 28] No space left on device"
    assert texts[rank] == own
    assert texts[1 - rank] == f"CheckpointError: rank {rank} could not write the checkpoint: {own}"
    assert not list(folder.glob(f"*full{rank}{together}*"))


def test_what_fails_on_another_rank_leaves_what_rank_0_has_saved(on_two: Cases, folder: Path) -> None:
    assert on_two["full", 1, False] == ["saved", "OSError: [Errno 28] No space left on device"]
    assert {path.name for path in folder.glob("*full1False*")} == {"full1False"}
    assert "random_states_0.pkl" in everything(folder / "full1False")
    assert "random_states_1.pkl" not in everything(folder / "full1False")


def fail_to_load_on_one(folder: str) -> str:
    accelerator = Accelerator()
    setup = Setup(accelerator, count=1)
    setup.accelerator.save_state(folder)

    def refuse(models: list[Any], folder: str) -> None:
        if accelerator.process_index:
            raise KeyError("mine")

    accelerator.register_load_state_pre_hook(refuse)
    try:
        setup.accelerator.load_state(folder)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "loaded"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("on-two")


@pytest.fixture(scope="module")
def on_two(folder: Path) -> Cases:
    """What two ranks do in these tests, each in a folder of its own."""
    return Cases(
        {
            "counted": (save_on, str(folder / "counted"), False, 2),
            "named": (save_and_load_where_each_rank_says, str(folder / "named")),
            "read on": (read_on, str(folder / "read on")),
            **{
                ("full", rank, together): (fail_on_one, str(folder / f"full{rank}{together}"), rank, together)
                for rank in (0, 1)
                for together in (False, True)
            },
            "unreadable": (fail_to_load_on_one, str(folder / "unreadable")),
        }
    )


def test_what_cannot_be_read_on_one_rank_fails_on_all(on_two: Cases) -> None:
    texts = on_two["unreadable"]
    assert texts == ["CheckpointError: rank 1 could not read the checkpoint: KeyError: 'mine'", "KeyError: 'mine'"]


# Crashes


class Deadly(Custom):
    """Ends the process while its state is written."""

    def state_dict(self) -> dict[str, Any]:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError


def die(folder: str, moment: str) -> None:
    """Saves twice, with other weights, and is killed in the second save."""
    setup = Setup(Accelerator(), count=1)
    setup.accelerator.save_state(folder)
    setup.step()
    if moment == "while writing":
        setup.accelerator.register_for_checkpointing(Deadly())
    elif setup.accelerator.is_main_process:
        renames = {"before the first rename": 0, "between the renames": 1, "after the second rename": 2}[moment]
        rename, done = os.rename, []

        def deadly(source: Any, target: Any) -> None:
            if len(done) == renames:
                os.kill(os.getpid(), signal.SIGKILL)
            rename(source, target)
            done.append(target)

        folders.os.rename = deadly  # type: ignore[attr-defined]
        if renames == 2:
            remove = shutil.rmtree
            folders.shutil.rmtree = lambda path, **kwargs: deadly("", "") if len(done) == 2 else remove(path, **kwargs)  # type: ignore[attr-defined]
    setup.accelerator.save_state(folder)


def weights_of(folder: str) -> list[Any]:
    setup = Setup(Accelerator(), count=1)
    setup.accelerator.load_state(folder)
    values = setup.values()
    setup.accelerator.save_state(folder)
    return values


SURVIVORS = {
    "while writing": "old",
    "before the first rename": "old",
    "between the renames": "old",
    "after the second rename": "new",
}
"""By the moment of a crash, the checkpoint that is there after it."""


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for each moment, in which ranks have been killed while saving."""
    folder = tmp_path_factory.mktemp("crashes")
    for moment in SURVIVORS:
        with pytest.raises(RankError, match="SIGKILL"):
            launch(die, str(folder / moment / "run"), moment)
    return folder


@pytest.fixture(scope="module")
def afterwards(crashed: Path) -> Cases:
    return Cases({moment: (weights_of, str(crashed / moment / "run")) for moment in SURVIVORS})


@pytest.mark.parametrize("moment", SURVIVORS)
def test_a_rank_that_is_killed_while_saving_leaves_a_whole_checkpoint(
    moment: str, crashed: Path, afterwards: Cases
) -> None:
    expected = Setup(Accelerator(cpu=True), count=1)
    if SURVIVORS[moment] == "new":
        expected.step()
    found = afterwards[moment]
    assert found[0][0] == found[1][0] == expected.values()[0]
    assert everything(crashed / moment) == {"run"}, "the next save has not tidied up"
