"""Weights as files: what is written comes back, here and in other libraries."""

from __future__ import annotations

import io
import json
import os
import pickle
import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import accelerate
import pytest
import safetensors
import torch
from accelerate.utils import load_checkpoint_in_model as accelerate_load
from torch import nn

from notebook_accel import Accelerator
from notebook_accel.errors import ConfigurationError
from notebook_accel.train.checkpoints import serialization, weights
from tests.train.conftest import Ranks


class Tied(nn.Module):
    """Two layers with one weight, one buffer, one number."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.norm = nn.BatchNorm1d(8)
        self.last = nn.Linear(8, 8, bias=False)
        self.last.weight = self.first.weight


def layers() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(16, 16) for _ in range(4)))


def equal(one: nn.Module, other: nn.Module) -> bool:
    mine, others = one.state_dict(), other.state_dict()
    return mine.keys() == others.keys() and all(torch.equal(mine[name], others[name]) for name in mine)


@pytest.mark.parametrize("safe", [True, False], ids=["safetensors", "pickle"])
@pytest.mark.parametrize("size", ["10GB", "1.5KB"], ids=["one file", "shards"])
@pytest.mark.parametrize("make", [layers, Tied])
def test_a_model_comes_back_as_it_was_saved(make: type[nn.Module], size: str, safe: bool, tmp_path: Path) -> None:
    model, other = make(), make()
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    weights.save_model(model.state_dict(), tmp_path, size, safe)
    assert weights.load_checkpoint_in_model(other, tmp_path, strict=True) == ([], [])
    assert equal(model, other)


@pytest.mark.parametrize("size", ["10GB", "1.5KB"], ids=["one file", "shards"])
def test_accelerate_reads_what_is_saved_here(size: str, tmp_path: Path) -> None:
    model, other = layers(), nn.Sequential(*(nn.Linear(16, 16) for _ in range(4)))
    weights.save_model(model.state_dict(), tmp_path, size)
    accelerate_load(other, str(tmp_path))
    assert equal(model, other)


@pytest.mark.parametrize("safe", [True, False], ids=["safetensors", "pickle"])
@pytest.mark.parametrize("size", ["10GB", "1.5KB"], ids=["one file", "shards"])
def test_what_accelerate_saves_is_read_here(size: str, safe: bool, tmp_path: Path) -> None:
    model, other = layers(), nn.Sequential(*(nn.Linear(16, 16) for _ in range(4)))
    accelerate.Accelerator(cpu=True).save_model(model, str(tmp_path), size, safe)
    weights.load_checkpoint_in_model(other, tmp_path, strict=True)
    assert equal(model, other)


def test_shards_are_named_and_indexed_as_others_expect(tmp_path: Path) -> None:
    weights.save_model(layers().state_dict(), tmp_path, 3000)
    names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [*names, "model.safetensors.index.json"]
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert index["metadata"] == {"total_size": 4 * (16 * 16 + 16) * 4}
    assert index["weight_map"]["0.weight"] == names[0]
    assert index["weight_map"]["3.bias"] == names[1]


def test_no_shard_is_larger_than_asked_except_for_a_single_tensor(tmp_path: Path) -> None:
    state = {"big": torch.zeros(1000), "a": torch.zeros(10), "b": torch.zeros(10), "c": torch.zeros(20)}
    weights.save_model(state, tmp_path, 100)
    files = weights.files(tmp_path)
    assert [sorted(weights.read(path)) for path in files] == [["big"], ["a", "b"], ["c"]]


def test_a_tensor_with_two_names_is_written_once_and_comes_back_under_both(tmp_path: Path) -> None:
    model = Tied()
    weights.save_model(model.state_dict(), tmp_path)
    assert "last.weight" not in weights.read(tmp_path / "model.safetensors")
    other = Tied()
    weights.load_checkpoint_in_model(other, tmp_path, strict=True)
    assert other.last.weight is other.first.weight
    assert torch.equal(other.last.weight, model.first.weight)


def test_views_of_one_storage_are_written_apart(tmp_path: Path) -> None:
    base = torch.arange(12.0)
    state = {"all": base, "part": base[3:6], "columns": base.view(3, 4).T, "empty": base[:0], "nothing": base[:0]}
    weights.save_model(state, tmp_path)
    found = weights.read(tmp_path / "model.safetensors")
    assert found.keys() == state.keys()
    assert all(torch.equal(found[name], state[name]) for name in state)


def test_saving_again_replaces_all_of_the_last_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model-card.safetensors").write_text("mine")
    weights.save_model(layers().state_dict(), tmp_path, 1500)
    assert len(list(tmp_path.iterdir())) == 7
    weights.save_model(layers().state_dict(), tmp_path)
    kept = {"config.json", "model-card.safetensors", "model.safetensors"}
    assert {path.name for path in tmp_path.iterdir()} == kept


def test_the_files_say_that_they_hold_tensors_of_torch(tmp_path: Path) -> None:
    weights.save_model(layers().state_dict(), tmp_path)
    with safetensors.safe_open(tmp_path / "model.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt"}


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "module._orig_mod."])
def test_names_that_wrappers_have_given_are_understood(prefix: str, tmp_path: Path) -> None:
    model, other = layers(), nn.Sequential(*(nn.Linear(16, 16) for _ in range(4)))
    weights.save_model({f"{prefix}{name}": tensor for name, tensor in model.state_dict().items()}, tmp_path)
    weights.load_checkpoint_in_model(other, tmp_path, strict=True)
    assert equal(model, other)


def test_a_model_whose_own_names_look_like_a_wrappers_keeps_them(tmp_path: Path) -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = nn.Linear(2, 2)
            self.weight = nn.Parameter(torch.ones(2))

    model, other = Own(), Own()
    weights.save_model(model.state_dict(), tmp_path)
    weights.load_checkpoint_in_model(other, tmp_path, strict=True)
    assert equal(model, other)


def test_weights_of_another_model_are_reported_or_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    weights.save_model(layers().state_dict(), tmp_path)
    fewer = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.BatchNorm1d(16, affine=False))
    missing, unexpected = weights.load_checkpoint_in_model(fewer, tmp_path)
    assert missing == ["2.running_mean", "2.running_var", "2.num_batches_tracked"]
    assert unexpected == ["1.bias", "1.weight", "2.bias", "2.weight", "3.bias", "3.weight"]
    not_used, not_there = caplog.messages
    assert "'3.bias' and 1 more, which the model doesn't have, so they were not used" in not_used
    assert not_there.endswith("'2.num_batches_tracked', so these weights of the model stay as they are.")
    with pytest.raises(
        ConfigurationError, match=r"do not match this model: missing '2\.running_mean'.*not in the model '1"
    ):
        weights.load_checkpoint_in_model(fewer, tmp_path, strict=True)


class Trap:
    """Leaves a folder behind when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.mark),)


def test_weights_that_would_run_code_are_refused(tmp_path: Path) -> None:
    torch.save({"0.weight": Trap(tmp_path / "mark")}, tmp_path / "pytorch_model.bin")
    with pytest.raises(pickle.UnpicklingError, match="Weights only load failed"):
        weights.load_checkpoint_in_model(layers(), tmp_path)
    assert not (tmp_path / "mark").exists()


@pytest.fixture
def full_disk() -> Iterator[None]:
    """Lets no file grow beyond 2 KiB, which fails as a full disk does."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2048, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize("safe", [True, False], ids=["safetensors", "pickle"])
def test_a_save_that_fails_leaves_what_was_there_before(safe: bool, full_disk: None, tmp_path: Path) -> None:
    weights.save_model({"small": torch.ones(2)}, tmp_path, safe_serialization=safe)
    (before,) = tmp_path.iterdir()
    content = before.read_bytes()
    for size in ("10GB", "1KB"):
        with pytest.raises((OSError, RuntimeError, safetensors.SafetensorError)):
            weights.save_model({"a": torch.ones(100), "b": torch.ones(1000)}, tmp_path, size, safe)
    with pytest.raises((OSError, RuntimeError, safetensors.SafetensorError)):
        serialization.save({"b": torch.ones(1000)}, before, safe_serialization=safe)
    assert list(tmp_path.iterdir()) == [before]
    assert before.read_bytes() == content


@pytest.mark.parametrize("outside", ["../other.safetensors", "/other.safetensors", "below/other.safetensors", "..", ""])
def test_an_index_names_only_files_beside_it(outside: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    weights.save_model(layers().state_dict(), tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "other.safetensors")
    folder.mkdir()
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"0.weight": outside}}))
    with pytest.raises(ConfigurationError, match="which is not in its folder"):
        weights.load_checkpoint_in_model(layers(), folder)


def test_an_index_may_be_only_the_names_of_the_files(tmp_path: Path) -> None:
    model = layers()
    weights.save_model(model.state_dict(), tmp_path, max_shard_size=1)
    index = tmp_path / weights.SAFE_WEIGHTS_INDEX_NAME
    index.write_text(json.dumps(json.loads(index.read_text())["weight_map"]))
    assert weights.load_checkpoint_in_model(layers(), tmp_path, strict=True) == ([], [])


def test_an_index_may_have_the_name_of_another_library(tmp_path: Path) -> None:
    model, other = layers(), layers()
    weights.save_model(model.state_dict(), tmp_path, max_shard_size=1)
    index = tmp_path / weights.SAFE_WEIGHTS_INDEX_NAME
    index.rename(tmp_path / "diffusion_pytorch_model.safetensors.index.json")
    assert weights.load_checkpoint_in_model(other, tmp_path, strict=True) == ([], [])
    assert equal(model, other)
    (tmp_path / "other.index.json").write_text("{}")
    with pytest.raises(ConfigurationError, match=r"several models \(diffusion_pytorch_model\S+, other\.index\.json\)"):
        weights.load_checkpoint_in_model(other, tmp_path)


def test_a_device_map_is_followed_as_in_accelerate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, other = layers(), layers()
    weights.save_model(model.state_dict(), tmp_path)
    with pytest.raises(ConfigurationError, match=r"\(dtype='float16'\) has no effect without device_map"):
        weights.load_checkpoint_in_model(other, tmp_path, dtype="float16")
    assert weights.load_checkpoint_in_model(other, tmp_path, {"": "cpu"}, dtype="float16") is None
    assert {each.dtype for each in other.parameters()} == {torch.float16}
    torch.testing.assert_close(other.state_dict(), model.half().state_dict())
    monkeypatch.setitem(sys.modules, "accelerate.utils.modeling", None)  # as if it were not installed
    with pytest.raises(ConfigurationError, match="run pip install accelerate"):
        weights.load_checkpoint_in_model(other, tmp_path, {"": "cpu"})


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"weight_map": 3}', '{"weight_map": {"a": {}}}', "\x00"])
def test_an_index_that_is_none_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(text)
    with pytest.raises(ConfigurationError, match="is not an index of weights"):
        weights.load_checkpoint_in_model(layers(), tmp_path)


REFUSED = {
    "a file for a folder": (lambda f: weights.save_model({}, f / "file"), "is a file"),
    "no size": (lambda f: weights.save_model({}, f, "big"), "max_shard_size='big' is not a size"),
    "a size of nothing": (lambda f: weights.save_model({}, f, 0), "is not a size"),
    "a number among tensors": (
        lambda f: weights.save_model({"n": 3}, f),
        "'n' is a int, but safetensors can contain only tensors",
    ),
    "no numbers": (lambda f: weights.save_model({"n": torch.ones(2, device="meta")}, f), "on the meta device"),
    "nothing to load": (lambda f: weights.files(f), "holds no weights: expected one of model.safetensors"),
    "nowhere to load from": (lambda f: weights.files(f / "no"), "no such file or folder"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_work_is_refused(name: str, tmp_path: Path) -> None:
    attempt, message = REFUSED[name]
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match=message):
        attempt(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("text", "size"),
    [(5, 5), ("5", 5), ("5KB", 5000), ("1.5MB", 1_500_000), ("2GiB", 2**31), ("10gb", 10**10), ("1M", 10**6)],
)
def test_sizes_are_written_as_people_write_them(text: int | str, size: int) -> None:
    assert weights.parse_size(text) == size


@pytest.fixture
def small_files() -> Iterator[None]:
    """No file may be longer than 64 KiB, which is refused at the same place as by a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**16, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.usefixtures("small_files")
def test_the_error_says_why_the_disk_refuses_a_file(tmp_path: Path) -> None:
    large = {"weight": torch.zeros(100_000)}
    with pytest.raises(OSError, match="File too large"):
        serialization.write_safe(large, tmp_path / "optimizer.bin", "the optimizer")
    with pytest.raises(OSError, match="File too large"):
        weights.write(large, tmp_path / "model.bin", safe_serialization=False)


def test_an_open_file_gets_a_pickle_but_no_safetensors() -> None:
    serialization.save({"a": torch.ones(2)}, file := io.BytesIO())
    file.seek(0)
    assert torch.equal(serialization.load(file)["a"], torch.ones(2))
    with pytest.raises(ConfigurationError, match="to a path, not to an open file"):
        serialization.save({"a": torch.ones(2)}, file, safe_serialization=True)


def saved_by_rank_0_alone(folder: str) -> tuple[list[str], float]:
    torch.manual_seed(0)
    accelerator = Accelerator()
    model = accelerator.prepare(nn.Linear(2, 2))
    if accelerator.is_main_process:
        accelerator.save_model(model, folder)
    total = accelerator.reduce(torch.ones(1))  # which rank 0 reaches only if nothing in the block waited
    return sorted(os.listdir(folder)), total.item()


def test_rank_0_may_save_a_whole_model_alone(ranks: Ranks, tmp_path: Path) -> None:
    assert ranks(saved_by_rank_0_alone, str(tmp_path / "model")) == [(["model.safetensors"], 2.0)] * 2
