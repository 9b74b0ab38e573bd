"""Two training runs never save to one folder at once, however the first ends, and on whatever disk the folder is."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from notebook_accel.errors import ConfigurationError
from notebook_accel.owner import Owner
from notebook_accel.train.checkpoints import folder_lock

_HOLD = """
import os, sys, time
from pathlib import Path
from notebook_accel.train.checkpoints import folder_lock

sys.stdin.readline()
try:
    lock = folder_lock.acquire(Path(sys.argv[1]), "3f9a2c", print)
except folder_lock.ConfigurationError:
    print("refused", flush=True)
else:
    if "fork" in sys.argv and os.fork() == 0:
        sys.stdin.readline()
        os._exit(0)
    print("held", flush=True)
    sys.stdin.readline()
    lock.release()
"""
reports: list[str] = []
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a process that takes the folder once it gets a line, and releases it with the next."""
    started: list[subprocess.Popen[str]] = []

    def begin(*arguments: str) -> subprocess.Popen[str]:
        code = f"from notebook_accel.train.checkpoints import folder_lock\nfolder_lock.GRACE = 0.0\n{_HOLD}"
        process = subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path), *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def held(process: subprocess.Popen[str]) -> bool:
    """Has a process take the folder; returns whether it could."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return process.stdout.readline() == "held\n"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_lock, "GRACE", 0.0)


def take(folder: Path, report: Callable[[str], None] = reports.append) -> folder_lock.FolderLock:
    lock = folder_lock.acquire(folder, "", report)
    assert lock is not None
    return lock


def write_holder(folder: Path, owner: str) -> None:
    (folder / folder_lock.NAME).write_text(json.dumps({"owner": owner, "host": "other-host", "job": "3f9a2c"}))


@pytest.mark.usefixtures("impatient")
def test_a_folder_that_another_process_holds_is_refused_until_that_releases_it(tmp_path: Path, start: Start) -> None:
    other = start()
    assert held(other)
    expected = (
        f"{tmp_path} is in use: process {other.pid} of this machine of the job 3f9a2c trains, and saves its "
        "checkpoints there, so that each of the two training runs would remove or continue the checkpoints of the "
        "other: "
        "attach('3f9a2c') shows it, and attach('3f9a2c').cancel() stops it, or save to another folder"
    )
    with pytest.raises(ConfigurationError, match=re.escape(expected)):
        folder_lock.acquire(tmp_path, "", reports.append)
    other.communicate("\n")
    assert list(tmp_path.iterdir()) == []
    take(tmp_path).release()
    assert list(tmp_path.iterdir()) == []


def test_a_process_that_is_killed_no_longer_holds_its_folder_even_if_a_fork_of_it_lives(
    tmp_path: Path, start: Start
) -> None:
    other = start("fork")
    assert held(other)
    other.send_signal(signal.SIGKILL)
    take(tmp_path).release()  # within the time that a killed process has, which is already over
    assert list(tmp_path.iterdir()) == []


def test_a_training_waits_for_one_that_is_just_ending(
    tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = start()
    assert held(other)
    monkeypatch.setattr(folder_lock, "NOTICE_AFTER", 0.0)
    found: list[str] = []

    def end_it(text: str) -> None:
        found.append(text)
        other.communicate("\n")

    take(tmp_path, end_it).release()
    assert len(found) == 1
    assert found[0].endswith("; waiting up to 20 s for it to end")


def test_of_several_that_begin_at_once_one_gets_the_folder(tmp_path: Path, start: Start) -> None:
    write_holder(tmp_path, str(Owner(2**22 + 1, 1, Owner.this().system)))  # has crashed
    processes = [start() for _ in range(4)]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    said = [process.stdout.readline() for process in processes if process.stdout is not None]
    assert sorted(said) == ["held\n", *["refused\n"] * 3]


def test_a_lock_on_a_file_that_its_holder_has_just_removed_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, calls = fcntl.flock, []

    def lock_late(fd: int, operation: int) -> None:
        if not calls:
            (tmp_path / folder_lock.NAME).unlink()
        calls.append(fd)
        lock(fd, operation)

    monkeypatch.setattr(fcntl, "flock", lock_late)
    held_lock = take(tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == [folder_lock.NAME]
    held_lock.release()


@pytest.mark.usefixtures("impatient")
def test_without_locks_the_file_tells_whether_its_process_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    write_holder(tmp_path, str(Owner.of(os.getppid())))
    with pytest.raises(ConfigurationError, match=f"process {os.getppid()} of this machine"):
        folder_lock.acquire(tmp_path, "", reports.append)
    write_holder(tmp_path, str(Owner(os.getppid(), 1, Owner.this().system)))  # an earlier process of this number
    take(tmp_path).release()
    write_holder(tmp_path, str(Owner(os.getppid(), 1, "another machine")))  # of a runtime that is gone
    take(tmp_path).release()


@pytest.mark.usefixtures("impatient")
def test_a_lock_of_another_machine_may_be_stale_so_it_is_only_named(tmp_path: Path, start: Start) -> None:
    assert held(start())
    write_holder(tmp_path, str(Owner(17, 1, "another pid:[1]")))
    assert folder_lock.acquire(tmp_path, "", reports.append) is None
    assert "process 17 of the machine other-host of the job 3f9a2c trains" in reports[-1]
    boot = Owner.this().system.partition(" ")[0]
    write_holder(tmp_path, str(Owner(17, 1, f"{boot} pid:[1]")))  # another container on this machine
    with pytest.raises(ConfigurationError, match="wait until it has ended, or end it "):
        folder_lock.acquire(tmp_path, "", reports.append)


def test_a_later_training_of_the_same_process_takes_the_folder_over(tmp_path: Path, start: Start) -> None:
    left, second = take(tmp_path), take(tmp_path)
    left.release()  # once its loop is collected
    assert not held(start())
    second.release()
    assert held(start())


def test_a_folder_that_cannot_be_written_to_is_not_held(tmp_path: Path) -> None:
    (tmp_path / folder_lock.NAME).mkdir()
    assert folder_lock.acquire(tmp_path, "", reports.append) is None
