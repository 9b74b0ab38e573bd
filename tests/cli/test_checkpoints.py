"""`notebook-accel checkpoints`: what is there, whether it is valid, and what a script can make of it."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result
from safetensors.torch import load_file, save_file

from notebook_accel import debug_launcher
from notebook_accel.cli.main import main
from notebook_accel.errors import NotebookAccelError
from notebook_accel.train.checkpoints import manifest
from notebook_accel.train.checkpoints.manifest import Place
from notebook_accel.train.checkpoints.remote_path import RemotePath
from tests.cli.test_others import save_shards
from tests.train.checkpoints import object_store


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three checkpoints, and one that `save_state` wrote."""
    run = tmp_path / "run"
    for step in (9, 10, 100):
        path = run / f"checkpoint_{step}"
        path.mkdir(parents=True)
        save_file({"weight": torch.full((3,), float(step))}, path / "model.safetensors")
        manifest.write(path, Place(epoch=step // 10, step=step, ranks=2))
    (run / "checkpoint_1").mkdir()
    (run / "checkpoint_1" / "model.safetensors").touch()
    return run


def damage(checkpoint: Path, *, size: bool = False) -> None:
    path = checkpoint / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content + b"x" * size)


def run(*words: str | Path, code: int = 0) -> Result:
    result = CliRunner().invoke(main, ["checkpoints", *map(str, words)])
    assert result.exit_code == code, result.output
    return result


def run_json(*words: str | Path, code: int = 0) -> Any:
    return json.loads(run(*words, "--json", code=code).stdout)


def refused(*words: str | Path) -> str:
    """The message; the command line ends with 2 then, as for all errors of the package."""
    result = CliRunner().invoke(main, ["checkpoints", *map(str, words)])
    assert isinstance(result.exception, NotebookAccelError)
    return str(result.exception)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_checkpoints_are_listed_by_step(folder: Path) -> None:
    header, *rows = [line.split() for line in run(folder).stdout.splitlines()]
    assert header == ["checkpoint", "step", "epoch", "ranks", "age", "size", "valid"]
    assert [(row[0], row[1:4], row[-1]) for row in rows] == [
        ("checkpoint_9", ["9", "0", "2"], "yes"),
        ("checkpoint_10", ["10", "1", "2"], "yes"),
        ("checkpoint_100", ["100", "10", "2"], "yes"),
    ]
    assert {row[-2] for row in rows} == {"kB"}
    assert run("list", folder).stdout.split("\n")[1].split()[:4] == rows[0][:4]


def test_a_list_names_what_is_seen_to_be_damaged_without_reading_files(folder: Path) -> None:
    damage(folder / "checkpoint_9", size=True)
    (folder / "checkpoint_10" / manifest.NAME).write_text("{")
    first, second, third = run_json(folder)
    assert not first["valid"]
    assert "has changed since it was saved" in first["problem"]
    assert (second["step"], second["valid"]) == (None, False)
    assert (third["step"], third["epoch"], third["ranks"], third["valid"]) == (100, 10, 2, True)
    assert third["bytes"] == sum(path.stat().st_size for path in (folder / "checkpoint_100").iterdir())
    assert third["saved"] == (folder / "checkpoint_100" / manifest.NAME).stat().st_mtime


def test_an_empty_folder_has_none_and_a_missing_one_is_an_error(tmp_path: Path) -> None:
    assert run_json(tmp_path) == []
    assert "has no checkpoints" in run(tmp_path).output
    assert "there is no folder" in refused(tmp_path / "none")
    assert "has no checkpoints" in refused("verify", tmp_path)
    assert "none has been saved yet" in refused("prune", tmp_path, "--keep", "1")


def test_a_misspelled_command_is_not_taken_for_a_folder(folder: Path) -> None:
    assert "there is no command prun; did you mean prune?" in run("prun", folder, code=2).output
    assert "there is no command show; choose one of" in run("show", folder, code=2).output


def test_verify_finds_a_byte_that_differs(folder: Path) -> None:
    assert run("verify", folder).stdout.count(": valid\n") == 3
    damage(folder / "checkpoint_10")
    assert [each["valid"] for each in run_json(folder)] == [True, True, True]
    assert [each["valid"] for each in run_json("verify", folder, code=1)] == [True, False, True]
    assert "its checksum differs" in run("verify", folder / "checkpoint_10", code=1).stdout
    run("verify", folder / "checkpoint_100")


def test_the_newest_valid_ones_are_kept(folder: Path) -> None:
    damage(folder / "checkpoint_100")
    before = names(folder)
    found = run_json("prune", folder, "--keep", "1", "--dry-run")
    assert names(folder) == before
    assert found == {
        "kept": [str(folder / "checkpoint_10")],
        "removed": [str(folder / "checkpoint_100"), str(folder / "checkpoint_9")],
        "dry_run": True,
    }
    assert "kept checkpoint_10\n" in run("prune", folder, "--keep", "1").stdout
    assert names(folder) == {"checkpoint_1", "checkpoint_10"}


def test_nothing_is_removed_if_none_is_valid(folder: Path) -> None:
    for step in (9, 10, 100):
        damage(folder / f"checkpoint_{step}")
    before = names(folder)
    assert "has no complete checkpoint" in refused("prune", folder, "--keep", "1")
    assert "give the folder that contains it" in refused("prune", folder / "checkpoint_9", "--keep", "1")
    run("prune", folder, "--keep", "0", code=2)
    assert names(folder) == before


def test_the_weights_of_the_newest_valid_one_become_safetensors(folder: Path, tmp_path: Path) -> None:
    damage(folder / "checkpoint_100")
    out = tmp_path / "out"
    found = run_json("convert", folder, out)
    assert found == {"checkpoint": str(folder / "checkpoint_10"), "models": [{"path": str(out), "tensors": 1}]}
    assert load_file(out / "model.safetensors")["weight"].tolist() == [10.0] * 3
    assert "wrote 1 tensors" in run("convert", folder / "checkpoint_9", out).stdout
    assert load_file(out / "model.safetensors")["weight"].tolist() == [9.0] * 3
    assert "its checksum differs" in refused("convert", folder / "checkpoint_100", out)


def test_several_models_and_pickled_weights_are_converted(tmp_path: Path) -> None:
    checkpoint, out = tmp_path / "checkpoint", tmp_path / "out"
    checkpoint.mkdir()
    torch.save({"a": torch.ones(2)}, checkpoint / "pytorch_model.bin")
    torch.save({"old": torch.ones(2)}, checkpoint / "pytorch_model_1.bin")
    save_file({"b": torch.zeros(2)}, checkpoint / "model_1.safetensors")
    run("convert", checkpoint, out)
    assert set(load_file(out / "model_0" / "model.safetensors")) == {"a"}
    assert set(load_file(out / "model_1" / "model.safetensors")) == {"b"}
    (tmp_path / "file").touch()
    assert f"the weights cannot be written to {tmp_path}/file/out" in refused(
        "convert", checkpoint, tmp_path / "file" / "out"
    )


class RunsCode:
    def __reduce__(self) -> Any:
        return os.mkdir, ("ran",)


def test_code_in_a_checkpoint_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    torch.save({"a": RunsCode()}, checkpoint / "pytorch_model.bin")
    assert "cannot be read" in refused("convert", checkpoint, "out")
    (checkpoint / "pytorch_model.bin").write_bytes(pickle.dumps(RunsCode()))
    assert "cannot be read" in refused("convert", checkpoint, "out")
    assert names(tmp_path) == {"checkpoint"}


def test_what_has_no_weights_is_refused(tmp_path: Path) -> None:
    assert "has no weights of a model" in refused("convert", tmp_path, tmp_path / "out")


def test_shards_are_converted(tmp_path: Path) -> None:
    """Starts ranks, which import torch."""
    checkpoint, out = tmp_path / "checkpoint", tmp_path / "out"
    expected = debug_launcher(save_shards, (str(checkpoint),))[0]
    run("convert", checkpoint, out)
    found = load_file(out / "model.safetensors")
    assert set(found) == set(expected)
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_a_remote_folder_works_like_a_local_one(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OBJECT_STORE", "")
    object_store.register(tmp_path / "store")
    for path in folder.glob("*/*"):
        RemotePath(f"bucket://run/{path.relative_to(folder)}").upload(path)
    remote = "bucket://run"
    assert [(each["path"], each["step"]) for each in run_json(remote)] == [
        (f"{remote}/checkpoint_{step}", step) for step in (9, 10, 100)
    ]
    weights = RemotePath(f"{remote}/checkpoint_100/model.safetensors")
    damage(folder / "checkpoint_100")
    weights.upload(folder / "checkpoint_100" / "model.safetensors")
    assert run("verify", remote, code=1).stdout.splitlines()[-1] == (
        f"{remote}/checkpoint_100: {weights} has changed since it was saved: its checksum differs"
    )
    run("convert", remote, tmp_path / "weights")
    assert load_file(tmp_path / "weights" / "model.safetensors")["weight"].tolist() == [10.0] * 3
    assert run_json("prune", remote, "--keep", "1")["removed"] == [f"{remote}/checkpoint_100", f"{remote}/checkpoint_9"]
    assert [each["step"] for each in run_json(remote)] == [10]
    assert "there is no folder bucket://other" in refused("bucket://other")
    assert "fsspec has no file system" in refused("buckett://run")
