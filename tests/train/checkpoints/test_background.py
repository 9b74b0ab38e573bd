"""Checkpoints that a thread writes: what becomes of them when the disk or a file fails."""

from __future__ import annotations

import errno
import os
import re
import shutil
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from notebook_accel import Accelerator, CheckpointError, ConfigurationError, PreemptedError, RankError, set_seed
from notebook_accel.train.checkpoints import background, folders, manifest
from notebook_accel.train.checkpoints.background import BackgroundSaver
from notebook_accel.train.checkpoints.manifest import Place
from notebook_accel.train.checkpoints.parts import HostCopies, Part
from tests.train.conftest import launch

STEPS_PER_EPOCH = 4


def train(
    folder: Path | str,
    epochs: int,
    every: str = "2",
    on_step: Callable[[int], None] = lambda _: None,
    outputs: int = 1,
) -> list[float]:
    """Trains on this process; returns the weights."""
    os.environ |= {"NOTEBOOK_ACCEL_CHECKPOINT_DIR": str(folder), "NOTEBOOK_ACCEL_CHECKPOINT_EVERY": every}
    set_seed(0)
    accelerator = Accelerator(cpu=True)
    model = nn.Linear(2, outputs)
    loader = DataLoader(TensorDataset(torch.randn(2 * STEPS_PER_EPOCH, 2)), batch_size=2, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, torch.optim.Adam(model.parameters(), lr=0.1), loader)
    step = 0
    for _ in accelerator.epochs(epochs):
        for (inputs,) in loader:
            accelerator.backward(model(inputs).square().sum())
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            on_step(step)
    return [each.item() for parameter in model.parameters() for each in parameter.flatten()]


@pytest.fixture(autouse=True)
def settings_are_of_one_test(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DIR", "EVERY", "RESUME"):
        monkeypatch.setenv(f"NOTEBOOK_ACCEL_CHECKPOINT_{name}", "")


def names(folder: Path) -> list[str]:
    return sorted((path.name for path in folder.iterdir()), key=lambda name: (len(name), name))


def test_the_newest_checkpoints_are_kept(tmp_path: Path) -> None:
    train(tmp_path, 3)
    assert names(tmp_path) == ["checkpoint_8", "checkpoint_10", "checkpoint_12"]
    assert manifest.place(tmp_path / "checkpoint_10") == Place(epoch=2, step=10, ranks=1)


def test_a_finished_training_is_not_trained_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    steps: list[int] = []
    weights = train(tmp_path, 2, on_step=steps.append)
    assert train(tmp_path, 2, on_step=steps.append) == weights
    assert len(steps) == 2 * STEPS_PER_EPOCH
    assert "resuming from" in capsys.readouterr().err
    train(tmp_path, 3, on_step=steps.append)
    assert len(steps) == 3 * STEPS_PER_EPOCH


def test_a_checkpoint_of_another_model_is_refused_with_what_to_do(tmp_path: Path) -> None:
    train(tmp_path, 1)
    with pytest.raises(
        CheckpointError,
        match=r"(?s)checkpoint_4 can't be loaded into .*size mismatch.*pass another folder as checkpoint=",
    ):
        train(tmp_path, 2, outputs=3)


def damage(path: Path, how: str) -> None:
    if how == "removed":
        path.unlink()
    elif how == "cut off":
        os.truncate(path, path.stat().st_size - 1)
    else:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)


@pytest.mark.parametrize("how", ["removed", "cut off", "a bit is another"])
@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.bin", "random_states_0.pkl", "checkpoint.json"])
def test_the_checkpoint_before_a_damaged_one_is_taken_and_said_loudly(
    name: str, how: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(tmp_path, 3)
    damage(tmp_path / "checkpoint_12" / name, how)
    assert background.newest(tmp_path) == tmp_path / "checkpoint_10"
    assert "WARNING: checkpoint_12 is damaged" in capsys.readouterr().err


def test_a_training_goes_on_from_the_checkpoint_before_a_damaged_one(tmp_path: Path) -> None:
    weights = train(tmp_path, 3)
    damage(tmp_path / "checkpoint_12" / "model.safetensors", "cut off")
    steps: list[int] = []
    assert train(tmp_path, 3, on_step=steps.append) == weights
    assert len(steps) == 2
    assert background.newest(tmp_path) == tmp_path / "checkpoint_12"


def test_with_all_checkpoints_damaged_it_begins_anew_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = train(tmp_path, 1)
    for name in names(tmp_path):
        damage(tmp_path / name / "model.safetensors", "removed")
    steps: list[int] = []
    assert train(tmp_path, 1, on_step=steps.append) == weights
    assert len(steps) == STEPS_PER_EPOCH
    assert f"WARNING: no checkpoint in {tmp_path} is intact, so the training starts from" in capsys.readouterr().err


def test_with_no_checkpoint_that_can_be_read_it_does_not_begin_anew_and_replace_them(tmp_path: Path) -> None:
    train(tmp_path, 1)
    before = names(tmp_path)
    for name in before:  # permissions would not keep the superuser out
        path = tmp_path / name / "model.safetensors"
        path.rename(path.with_name("aside"))
        path.symlink_to(path)
    with pytest.raises(CheckpointError, match=r"a matter of access: .*/model.safetensors cannot be read: .*Make the"):
        train(tmp_path, 1)
    assert names(tmp_path) == before
    for name in before:
        (tmp_path / name / "aside").rename(tmp_path / name / "model.safetensors")
    steps: list[int] = []
    train(tmp_path, 1, on_step=steps.append)
    assert steps == []


@pytest.mark.parametrize("below", ["", "folder"])
def test_a_file_is_no_folder_for_checkpoints(below: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match=r"can't be saved to .*/file.*: .*\. Name a folder"):
        train(tmp_path / "file" / below, 1)


def test_a_full_disk_is_reported_and_the_training_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = train(tmp_path / "whole", 3)
    original = torch.save
    written = []

    def save(state: Any, path: Any) -> None:
        if isinstance(path, Path):
            written.append(path)
            if len(written) > 12:  # some files of the second checkpoint or a later one
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        original(state, path)

    monkeypatch.setattr(torch, "save", save)
    assert train(tmp_path / "full", 3) == whole
    reported = capsys.readouterr().err
    assert re.search(r"after step \d+ could not be written \(OSError: .*No space left on device", reported)
    assert "Training continues; the last one is" in reported
    assert re.search(
        r"the training is complete, but the checkpoint of its end could not be written, so the same launch would "
        r"repeat the steps after checkpoint_\d+\. To keep the result, return or save the model",
        reported,
    )
    left = names(tmp_path / "full")
    assert left
    for name in left:
        manifest.verify(tmp_path / "full" / name)


def test_a_folder_that_cannot_be_written_to_is_reported_and_the_training_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = train(tmp_path / "whole", 1)
    assert train("/proc/folder", 1) == whole  # permissions would not keep the superuser out
    before_the_first_step, _, later = capsys.readouterr().err.partition("so nothing can be resumed")
    assert "checkpoints cannot be written to" in before_the_first_step
    assert "could not be written (FileNotFoundError" not in before_the_first_step
    assert "could not be written (FileNotFoundError" in later


def listens(process: Any, port: int) -> bool:
    """Whether a process holds a socket that listens at a port."""
    import psutil

    try:
        found = process.net_connections("tcp4")
    except psutil.NoSuchProcess:  # a rank of another group
        return False
    return any(each.status == psutil.CONN_LISTEN and each.laddr.port == port for each in found)


def loses_its_store(folder: str) -> list[float]:
    """On each rank: a training run whose rendezvous is killed on the way."""
    import psutil

    def kill_store(step: int) -> None:
        if step == 3 and os.environ["RANK"] == "0":
            port = int(os.environ["MASTER_PORT"])
            # Only children of the server: the store's guard has the same sockets, and ends with it.
            (store,) = (each for each in psutil.Process(os.getppid()).children() if listens(each, port))
            store.kill()

    return train(folder, 4, on_step=kill_store)


def test_ranks_save_checkpoints_after_their_store_was_killed(tmp_path: Path) -> None:
    whole = launch(train, str(tmp_path / "whole"), 4)
    assert launch(loses_its_store, str(tmp_path / "lost")) == whole
    assert names(tmp_path / "lost") == ["checkpoint_4", "checkpoint_6", "checkpoint_8"]


def test_a_training_that_ends_early_on_a_full_disk_names_the_checkpoint_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end(step: int) -> None:
        if step == 5:
            os.kill(os.getpid(), signal.SIGTERM)
            monkeypatch.setattr(os, "rename", refuse)

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(
        PreemptedError,
        match=r"after step (6|7|8), whose .* from the previous checkpoint, .*checkpoint_[24], make",
    ):
        train(tmp_path / "run", 3, every="2", on_step=end)
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_sigterm_ends_a_training_after_a_checkpoint(tmp_path: Path) -> None:
    whole = train(tmp_path / "whole", 3)
    with pytest.raises(PreemptedError, match=r"SIGTERM ended the training after step (\d+)\. .*/checkpoint_\1 has"):
        train(tmp_path / "cut", 3, "1 h", lambda step: os.kill(os.getpid(), signal.SIGTERM) if step == 5 else None)
    assert train(tmp_path / "cut", 3) == whole


def dies_while_it_saves(folder: str, at: int) -> None:
    """Is killed by the system call of its own at which a checkpoint is so far."""
    calls = 0

    def counted(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal calls
            if folder in "".join(map(str, arguments)) or original.__name__ == "fsync":
                calls += 1
                if calls == at:
                    os.kill(os.getpid(), signal.SIGKILL)
            return original(*arguments, **options)

        return call

    for owner, name in ((os, "rename"), (os, "fsync"), (torch, "save"), (shutil, "rmtree")):
        setattr(owner, name, counted(getattr(owner, name)))
    train(Path(folder), 3)


@pytest.mark.parametrize("at", [3, 20, 26, 35, 36, 37, 65, 77])
def test_a_save_that_is_cut_off_leaves_the_checkpoint_before_it(at: int, tmp_path: Path) -> None:
    whole = train(tmp_path / "whole", 3)
    with pytest.raises(RankError, match="SIGKILL"):
        launch(dies_while_it_saves, str(tmp_path / "cut"), at, size=1)
    steps: list[int] = []
    assert train(tmp_path / "cut", 3, on_step=steps.append) == whole
    left = names(tmp_path / "cut")
    assert left[-3:] == ["checkpoint_8", "checkpoint_10", "checkpoint_12"]
    assert len(left) <= 4, "only a checkpoint that was to be removed when the process was killed may be left"


def test_a_state_that_could_not_be_read_back_is_refused_before_the_first_step(tmp_path: Path) -> None:
    class Unsafe:
        def state_dict(self) -> dict[str, Any]:
            return {"path": tmp_path}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            pass

    os.environ["NOTEBOOK_ACCEL_CHECKPOINT_DIR"] = str(tmp_path)
    accelerator = Accelerator(cpu=True)
    accelerator.prepare(nn.Linear(1, 1))
    accelerator.register_for_checkpointing(Unsafe())
    with pytest.raises(ConfigurationError, match=r"the state of Unsafe \(registered object 0\) contains pathlib"):
        next(iter(accelerator.epochs(1)))


def test_a_seal_in_which_a_digit_has_changed_is_refused(tmp_path: Path) -> None:
    manifest.write(tmp_path, Place(epoch=1, step=12, ranks=2))
    path = tmp_path / manifest.NAME
    manifest.verify(tmp_path)
    path.write_text(path.read_text().replace('"step": 12', '"step": 13'))
    with pytest.raises(CheckpointError, match="its checksum differs"):
        manifest.verify(tmp_path)


def test_a_seal_that_is_not_one_is_an_error_of_ours(tmp_path: Path) -> None:
    for text in ("", "{}", "[]", '{"epoch": 1, "step": 2, "ranks": 1, "files": []}', '{"epoch": "x"}', "\udcff"):
        (tmp_path / manifest.NAME).write_text(text, encoding="utf-8", errors="surrogatepass")
        with pytest.raises(CheckpointError, match="cannot be read"):
            manifest.verify(tmp_path)


def test_copies_share_memory_where_their_tensors_do() -> None:
    weight = torch.ones(3)
    state = {"one": weight, "other": weight.detach(), "list": [weight.view(3, 1), 5], "empty": torch.empty(0)}
    (copied,) = HostCopies().of([Part(state, lambda state, folder: None)])
    weight.zero_()
    assert copied.state["one"].tolist() == [1, 1, 1]
    assert copied.state["one"].data_ptr() == copied.state["other"].data_ptr()
    assert copied.state["list"][0].shape == (3, 1)
    assert copied.state["list"][1] == 5


def test_the_next_copies_use_the_same_memory_again() -> None:
    copies, state = HostCopies(), {"model": torch.ones(3, 2), "mean": torch.zeros(3, 2), "step": torch.tensor(1.0)}

    def copied() -> dict[str, torch.Tensor]:
        (part,) = copies.of([Part(state, lambda state, folder: None)])
        return dict(part.state)

    first = copied()
    state["model"] += 1
    state |= {"transposed": torch.zeros(2, 3).t(), "whole": torch.full((3, 2), 5)}  # which come without memory
    second = copied()
    assert second["model"].tolist() == [[2, 2]] * 3
    assert second["whole"].dtype == torch.int64
    assert second["transposed"].tolist() == [[0, 0]] * 3
    assert {each.data_ptr() for each in first.values()} < {each.data_ptr() for each in second.values()}
    assert len({each.data_ptr() for each in second.values()}) == 5


def wait_until_written() -> None:
    """Waits for the checkpoint that is being written, if there is one."""
    for thread in threading.enumerate():
        if thread.name == "checkpoint":
            thread.join()


def test_a_checkpoint_that_takes_long_to_write_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train(tmp_path / "usual", 1, on_step=lambda _: wait_until_written())
    write, wait = background.save_folder, BackgroundSaver.wait
    is_awaited = threading.Event()

    def write_late(*args: Any) -> None:
        assert is_awaited.wait(60)
        write(*args)

    def wait_for_it(saver: BackgroundSaver) -> None:
        if saver.is_busy:
            is_awaited.set()
        wait(saver)

    monkeypatch.setattr(background, "save_folder", write_late)
    monkeypatch.setattr(BackgroundSaver, "wait", wait_for_it)
    train(tmp_path / "late", 1)
    usual, late = (manifest.mark(tmp_path / run / "checkpoint_2" / "model.safetensors") for run in ("usual", "late"))
    assert late == usual


def test_what_a_crash_left_is_tidied(tmp_path: Path) -> None:
    for name in (
        ".checkpoint_2.unfinished",
        ".checkpoint_3.removed",
        ".checkpoint_4.previous",
        "mine",
        ".mine.previous",
    ):
        (tmp_path / name).mkdir()
    folders.tidy(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".mine.previous", "checkpoint_4", "mine"]


def test_a_training_that_fails_waits_for_the_checkpoint_that_is_being_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write, wait = background.save_folder, BackgroundSaver.wait_briefly
    is_awaited = threading.Event()

    def write_late(*args: Any) -> None:
        assert is_awaited.wait(20)
        write(*args)

    def wait_briefly(saver: BackgroundSaver) -> None:
        is_awaited.set()
        wait(saver)

    def fail(step: int) -> None:
        if step == 3:
            raise ValueError("too bad")

    monkeypatch.setattr(background, "save_folder", write_late)
    monkeypatch.setattr(BackgroundSaver, "wait_briefly", wait_briefly)
    with pytest.raises(ValueError, match="too bad"):
        train(tmp_path, 1, on_step=fail)
    assert names(tmp_path) == ["checkpoint_2"]
    assert capsys.readouterr().err == "", "it was written soon"


def test_a_training_that_fails_does_not_wait_forever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    has_failed = threading.Event()
    written = []

    def fail(step: int) -> None:
        if step == 3:
            raise ValueError("too bad")

    monkeypatch.setattr(background, "save_folder", lambda *_: written.append(has_failed.wait(5)))
    monkeypatch.setattr(background, "LAST_GRACE", 0.02)
    monkeypatch.setattr(background, "NOTICE_AFTER", 0.01)
    with pytest.raises(ValueError, match="too bad"):
        train(tmp_path, 1, on_step=fail)
    assert written == []
    has_failed.set()
    assert "waiting up to 0.02 s for the checkpoint that is being written" in capsys.readouterr().err


@pytest.mark.parametrize("at", [1, 5])
def test_a_folder_that_is_removed_meanwhile_is_reported_and_made_anew(
    at: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before the first checkpoint, and after the second."""

    def remove(step: int) -> None:
        if step == at:
            wait_until_written()
            shutil.rmtree(tmp_path / "run")

    train(tmp_path / "run", 3, on_step=remove)
    reported = capsys.readouterr().err
    gone = tmp_path / "run" / ("checkpoint_4" if at == 5 else "")
    assert reported.count("no longer exists") == 1
    assert f"WARNING: {gone} no longer exists: it was removed" in reported
    assert names(tmp_path / "run") == ["checkpoint_8", "checkpoint_10", "checkpoint_12"]
