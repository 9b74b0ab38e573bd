"""Merging weights, opening the lab, and checking a machine."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file

from notebook_accel import Accelerator, FullyShardedDataParallelPlugin, debug_launcher, set_seed
from notebook_accel.cli import check, lab
from notebook_accel.cli.check import Finding
from notebook_accel.cli.main import main
from notebook_accel.errors import CheckpointError

pytestmark = pytest.mark.early


def save_shards(checkpoint: str) -> dict[str, torch.Tensor]:
    set_seed(0)
    accelerator = Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin())
    model = torch.nn.Sequential(torch.nn.Linear(7, 5), torch.nn.BatchNorm1d(5))
    model, _ = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    accelerator.save_state(checkpoint)
    whole = accelerator.get_state_dict(model)
    accelerator.end_training()
    return whole


def test_shards_become_the_weights_that_were_saved(tmp_path: Path) -> None:
    from notebook_accel.train.checkpoints.layouts import merging  # not by whoever only collects tests: it takes seconds

    checkpoint, out = tmp_path / "checkpoint", tmp_path / "out"
    expected = debug_launcher(save_shards, (str(checkpoint),))[0]
    result = CliRunner().invoke(main, ["merge-weights", str(checkpoint), str(out)])
    assert result.exit_code == 0, result.output
    merged = load_file(out / "model.safetensors")
    assert set(merged) == set(expected)
    assert all(torch.equal(merged[name], expected[name]) for name in expected)
    (checkpoint / "pytorch_model_fsdp_0" / ".metadata").write_bytes(b"nothing")
    with pytest.raises(CheckpointError, match="cannot be read"):
        merging.read(checkpoint / "pytorch_model_fsdp_0")


def test_what_has_no_shards_is_refused(tmp_path: Path) -> None:
    from notebook_accel.train.checkpoints.layouts import merging

    with pytest.raises(CheckpointError, match="no such folder"):
        merging.find(tmp_path / "none")
    with pytest.raises(CheckpointError, match="its weights are not sharded"):
        merging.find(tmp_path)
    for index in (0, 1):
        (tmp_path / f"pytorch_model_fsdp_{index}").mkdir()
    with pytest.raises(CheckpointError, match="give one of pytorch_model_fsdp_0, pytorch_model_fsdp_1"):
        merging.find(tmp_path)


def test_a_lab_has_the_examples_and_leaves_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").write_text("mine")
    started: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda _, command: started.append(command))
    result = CliRunner().invoke(main, ["lab", str(tmp_path), "--no-browser"])
    assert result.exit_code == 0, result.output
    assert (tmp_path / "train.py").read_text() == "mine"
    assert (tmp_path / "01_first_launch.ipynb").is_file()
    assert (tmp_path / "recipes" / "lora.ipynb").is_file()
    assert started == [
        [sys.executable, "-m", "jupyterlab", f"--ServerApp.root_dir={tmp_path}", "--no-browser"],
    ]
    assert lab.copy(tmp_path) == []


def test_this_machine_passes_its_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the settings say of others, for which it would wait."""
    settings = tmp_path / "settings.yaml"
    settings.write_text("num_machines: 2\nnum_processes: 4\nmachine_rank: 1\nmain_process_ip: 10.0.0.1\n")
    monkeypatch.setenv("NOTEBOOK_ACCEL_CONFIG_FILE", str(settings))
    result = CliRunner().invoke(main, ["test", "--num_processes", "2"])
    assert result.exit_code == 0, result.output
    names = [line[6:].partition(":")[0] for line in result.output.splitlines() if line[:5].strip() in ("ok", "slow")]
    assert {"torch", "ports", "launch", "collectives", "bfloat16", "checkpoint", "script"} <= set(names)
    assert "This machine is ready" in result.output


def test_what_is_wrong_ends_the_test_with_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(ranks: int) -> Iterator[Finding]:
        yield Finding("ports", "wrong", "no connection", "ask for one")

    def unreached(ranks: int) -> Iterator[Finding]:
        raise AssertionError

    monkeypatch.setattr("notebook_accel.cli.check.CHECKS", {"network": broken, "launches": unreached})
    result = CliRunner().invoke(main, ["test"])
    assert result.exit_code == 1
    assert "WRONG ports: no connection\n      → ask for one\n" in result.output


GOOD = {
    "device": "cpu", "backend": "gloo", "collectives": "", "checkpoint": "", "bandwidth": 1e9,
    "precision": {"bfloat16": 0.001, "float16": 0.001},
}  # fmt: skip


@pytest.mark.parametrize(
    ("finding", "name", "grade"),
    [
        ({"collectives": "gather gives wrong values"}, "collectives", "wrong"),
        ({"bandwidth": 1e6}, "bandwidth", "slow"),
        ({"precision": {"bfloat16": 0.5, "float16": 0.001}}, "bfloat16", "wrong"),
        ({"checkpoint": "a step differs"}, "checkpoint", "wrong"),
    ],
)
def test_what_one_rank_finds_counts_for_all(finding: dict[str, object], name: str, grade: str) -> None:
    found = {each.name: each for each in check.judge_ranks([GOOD, {**GOOD, **finding}])}
    assert found[name].grade == grade
    assert found[name].advice
    assert all(each.grade == "ok" for other, each in found.items() if other != name)


def test_a_torch_that_cannot_be_imported_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('libcudart.so is missing')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (found,) = check.torch_and_devices(2)
    assert found.grade == "wrong"
    assert "libcudart.so is missing" in found.text


def test_two_ranks_of_the_script_that_is_tried_cannot_mix_their_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each write is a message of its own here, as two ranks' writes can follow each other in any order."""
    monkeypatch.setenv("PYTHONUNBUFFERED", "1")  # as the images of many containers do
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with here, there:
        environ = {**os.environ, "RANK": "12"}
        subprocess.run([sys.executable, "-c", check.RANK_SCRIPT], stdout=there, env=environ, check=True)
        assert here.recv(100) == b"12\n"


def test_ranks_that_print_something_else_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 0\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    (found,) = check.script(2)
    assert found.grade == "wrong"
    assert "its 2 ranks, which print their numbers, print '0\\n'" in found.text
