"""Checkpoints in a remote folder: an object store that has no rename, and that fails when it is told to."""

from __future__ import annotations

import os
import tempfile
import threading
import urllib.parse
from pathlib import Path
from typing import Any

import pytest
import torch
from fsspec.implementations.local import LocalFileSystem
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from notebook_accel import Accelerator, CheckpointError, FullyShardedDataParallelPlugin, notebook_launcher, set_seed
from notebook_accel.train.checkpoints import background, maintenance, manifest, transfer
from notebook_accel.train.checkpoints.remote_path import RemotePath
from tests.train.checkpoints import object_store
from tests.train.checkpoints.test_background import train

RUN = "bucket://runs/digits"


class Store:
    """The store, from outside."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def file(self, key: str) -> Path:
        return self.folder / urllib.parse.quote(f"runs/digits/{key}", safe="")

    def keys(self) -> list[str]:
        found = [urllib.parse.unquote(each.name).removeprefix("runs/digits/") for each in self.folder.iterdir()]
        return sorted(found)

    def checkpoints(self) -> list[str]:
        return sorted({key.partition("/")[0] for key in self.keys()}, key=lambda name: int(name[11:]))

    def log(self) -> list[str]:
        return Path(f"{self.folder}.log").read_text().replace("runs/digits/", "").splitlines()

    def fail(self, keys: str | None) -> None:
        """Makes the store refuse keys with this text; `None`: no longer."""
        if keys is None:
            Path(f"{self.folder}.fails").unlink()
        else:
            Path(f"{self.folder}.fails").write_text(keys)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    for name in ("DIR", "EVERY", "RESUME"):
        monkeypatch.setenv(f"NOTEBOOK_ACCEL_CHECKPOINT_{name}", "")
    monkeypatch.setenv("OBJECT_STORE", "")
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    object_store.register(tmp_path / "store")
    return Store(tmp_path / "store")


def test_a_training_goes_on_from_a_remote_folder_and_keeps_the_newest(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = train(tmp_path / "local", 3)

    def end(step: int) -> None:
        if step == 7:
            for thread in threading.enumerate():
                if thread.name == "checkpoint":
                    thread.join()
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        train(RUN, 3, on_step=end)
    steps: list[int] = []
    assert train(RUN, 3, on_step=steps.append) == whole
    assert len(steps) == 12 - 6
    assert f"resuming from {RUN}/checkpoint_6: in epoch 1, after 6 steps" in capsys.readouterr().err
    assert store.checkpoints() == ["checkpoint_8", "checkpoint_10", "checkpoint_12"]
    assert not list(tmp_path.glob("tmp/notebook-accel-*"))


def test_a_checkpoint_is_sealed_last_and_its_seal_is_removed_first(store: Store) -> None:
    train(RUN, 3)
    log = [line for line in store.log() if "checkpoint_4/" in line]
    written = [line for line in log if line.startswith("wrote")]
    removed = [line for line in log if line.startswith("removed")]
    assert written[-1] == "wrote checkpoint_4/checkpoint.json"
    assert removed[:2] == ["removed checkpoint_4/checkpoint.unfinished", "removed checkpoint_4/checkpoint.json"]
    assert len(written) == len(removed) > 4


def test_a_store_that_refuses_is_reported_and_the_training_goes_on(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = train(tmp_path / "local", 3)
    capsys.readouterr()

    def refuse(step: int) -> None:
        if step == 5:
            store.fail("optimizer.bin")
        elif step == 9:
            store.fail(None)

    assert train(RUN, 3, on_step=refuse) == whole
    reported = capsys.readouterr().err
    refused = "PermissionError: the store refuses runs/digits/checkpoint_6/optimizer.bin"
    assert f"after step 6 could not be written ({refused})" in reported
    assert f"Training continues; the last one is {RUN}/checkpoint_" in reported
    for name in store.checkpoints():
        manifest.verify(RemotePath(f"{RUN}/{name}"))
    assert store.checkpoints()[-1] == "checkpoint_12"
    assert not list(tmp_path.glob("tmp/notebook-accel-*"))


@pytest.mark.parametrize("how", ["removed", "changed", "not sealed"])
def test_a_damaged_or_unfinished_remote_checkpoint_is_passed_over(
    how: str, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    train(RUN, 3)
    if how == "changed":
        file = store.file("checkpoint_12/model.safetensors")
        file.write_bytes(file.read_bytes()[:-1] + b"?")
    else:
        name = "checkpoint.json" if how == "not sealed" else "optimizer.bin"
        store.file(f"checkpoint_12/{name}").unlink()
    assert background.newest(RemotePath(RUN)) == RemotePath(f"{RUN}/checkpoint_10")
    assert ("WARNING: checkpoint_12 is damaged" in capsys.readouterr().err) == (how != "not sealed")
    assert "checkpoint_12" in store.checkpoints()
    background.remove_copies(RemotePath(RUN))


def test_a_folder_of_the_users_is_kept_and_what_a_crash_has_left_is_removed(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    store.folder.mkdir(exist_ok=True)
    for name in ("checkpoint_0/model.safetensors", "checkpoint_6/model.safetensors", "checkpoint_1/optimizer.bin"):
        store.file(name).write_bytes(b"1")
    store.file("checkpoint_1/checkpoint.unfinished").touch()
    train(RUN, 3)
    assert store.checkpoints() == ["checkpoint_0", "checkpoint_6", "checkpoint_8", "checkpoint_10", "checkpoint_12"]
    assert store.file("checkpoint_6/model.safetensors").read_bytes() == b"1"
    reported = capsys.readouterr().err
    assert f"{RUN}/checkpoint_6 exists and is not an automatic checkpoint. Move it, or choose another" in reported


def test_a_file_with_a_name_that_leads_out_of_its_folder_is_refused(store: Store, tmp_path: Path) -> None:
    train(RUN, 1)
    for name in ("/etc/passwd", "a//b", "./c", "../d"):
        store.file(f"checkpoint_4/{name}").touch()
        with pytest.raises(CheckpointError, match="must not have a file"):
            RemotePath(f"{RUN}/checkpoint_4").download_all(tmp_path / "copy")
        store.file(f"checkpoint_4/{name}").unlink()


def test_a_store_that_cannot_be_read_is_not_taken_for_an_empty_one(store: Store) -> None:
    train(RUN, 1)
    store.fail("")
    with pytest.raises(CheckpointError, match=r"can't be read \(PermissionError.*check its name, your credentials"):
        background.newest(RemotePath(RUN))


@pytest.mark.parametrize("why", ["the store refuses runs/digits/notebook-accel.probe", "the bucket does not exist"])
def test_a_store_that_cannot_be_written_to_is_an_error_before_the_first_step(why: str, store: Store) -> None:
    folder = RUN if "refuses" in why else f"bucket://{object_store.ABSENT}/digits"
    if folder == RUN:
        store.fail(".probe")
    steps: list[int] = []
    with pytest.raises(
        CheckpointError, match=rf"{folder} can't be written to \(\w+Error: {why}\): check its name, your"
    ):
        train(folder, 1, on_step=steps.append)
    assert not steps
    assert not store.keys(), "a bucket with a mistyped name is not created"


def test_a_file_system_with_folders_gets_those_that_it_lacks(tmp_path: Path) -> None:
    run = RemotePath(str(tmp_path / "runs" / "digits"), LocalFileSystem())
    transfer.check_writable(run)
    assert list(tmp_path.rglob("*")) == [tmp_path / "runs", tmp_path / "runs" / "digits"]


def test_checkpoints_of_a_store_are_listed_and_pruned(store: Store) -> None:
    train(RUN, 3)
    run = RemotePath(RUN)
    found = [maintenance.inspect(path, checksums=True) for path in maintenance.find(run)]
    assert [(each.path.name, each.problem) for each in found] == [(f"checkpoint_{n}", "") for n in (8, 10, 12)]
    assert all(each.size > 1000 and each.saved > 1e9 for each in found)
    assert maintenance.find(run / "checkpoint_8") == [run / "checkpoint_8"]
    maintenance.prune(run, 1)
    assert store.checkpoints() == ["checkpoint_12"]


def train_on_ranks(folder: str, fails: bool) -> list[float]:
    """On each rank, with shards: dies once after a few steps, if it is to."""
    object_store.register(Path(os.environ["OBJECT_STORE"]))
    set_seed(0)
    accelerator = Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin())
    model: Any = nn.Linear(4, 2)
    data = DataLoader(TensorDataset(torch.randn(32, 4)), batch_size=2, shuffle=True)
    model, optimizer, data = accelerator.prepare(model, torch.optim.Adam(model.parameters(), lr=0.1), data)
    for _ in accelerator.epochs(2):
        for number, (inputs,) in enumerate(data):
            accelerator.backward(model(inputs).square().sum())
            optimizer.step()
            optimizer.zero_grad()
            if fails and number == 6 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
                while not RemotePath(f"{folder}/checkpoint_4/checkpoint.json").is_file():
                    pass
                raise RuntimeError("once")
    weights = accelerator.get_state_dict(model)
    return [] if weights is None else [each for tensor in weights.values() for each in tensor.flatten().tolist()]


def test_ranks_save_their_shards_to_a_store_and_go_on_from_it(store: Store, tmp_path: Path) -> None:
    """Launches twice, on two ranks each."""
    whole = notebook_launcher(train_on_ranks, ("", False), 2, device="cpu")
    options = {"device": "cpu", "checkpoint": RUN, "every": 4, "max_restarts": 1}
    found = notebook_launcher(train_on_ranks, (RUN, True), 2, **options)
    assert found == whole
    assert store.checkpoints() == ["checkpoint_8", "checkpoint_12", "checkpoint_16"]
    assert not list(tmp_path.glob("tmp/notebook-accel-*"))
