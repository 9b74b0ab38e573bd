"""A job that is detached while its kernel ends."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from notebook_accel import notebook_launcher
from notebook_accel.launch.driver import detach
from notebook_accel.launch.journal import records
from tests.live_notebook import wait_until


class KernelEnds(BaseException):
    """Stands for the end of the kernel, which closes its sockets."""


def drivers(state: Path) -> list[int]:
    """The processes that run detached jobs whose folder is there."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        with contextlib.suppress(psutil.Error):
            is_driver = "driver.detached_main:main" in " ".join(process.info["cmdline"] or ())
            if is_driver and process.environ().get(records.VARIABLE) == str(state):
                found.append(process.pid)
    return found


def test_a_kernel_that_ends_before_its_job_has_begun_leaves_no_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end(*_: object) -> bool:
        raise KernelEnds

    monkeypatch.setenv(records.VARIABLE, str(tmp_path))
    monkeypatch.setattr(detach, "is_readable", end)
    with pytest.raises(KernelEnds):
        notebook_launcher(int, (), 1, device="cpu", detach=True)
    wait_until(lambda: not drivers(tmp_path))
    assert records.all_records() == []


FULL = """
import sys, time
from pathlib import Path
from notebook_accel import notebook_launcher
from notebook_accel.errors import NotebookAccelError

disk, go = map(Path, sys.argv[1:])

def work(fails):
    print("ready")
    while not go.exists():
        time.sleep(0.01)
    if fails:
        raise ValueError("bad data" * 5000)  # more than the journal's last page has room for
    return bytes(10_000)

jobs = [notebook_launcher(work, (fails,), 1, device="cpu", detach=True) for fails in (True, False)]
for job in jobs:
    while not job.ranks[0].lines:
        time.sleep(0.01)
try:
    with open(disk / "other", "wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
except OSError as error:
    print("DISK", error, flush=True)
go.touch()
for job in jobs:
    try:
        job.result(60)
    except Exception as error:
        print("RAISED", isinstance(error, NotebookAccelError), type(error).__name__, error, flush=True)
try:
    notebook_launcher(int, (), 1, device="cpu", detach=True)
except Exception as error:
    print("RAISED", isinstance(error, NotebookAccelError), type(error).__name__, error, flush=True)
"""


def test_a_full_disk_is_named_by_the_error_of_a_detached_job(tmp_path: Path) -> None:
    """A real one, which no other process sees: a result has no room, nor has an end, nor a new job."""
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode:
        pytest.skip("a file system of one's own is not allowed here")
    disk, go, code = tmp_path / "disk", tmp_path / "go", tmp_path / "full.py"
    disk.mkdir()
    code.write_text(FULL)
    mount = 'mount -t tmpfs -o size=256k none "$0" && exec "$@"'
    environ = {**os.environ, records.VARIABLE: str(disk), "PYTHONPATH": str(Path(__file__).parents[3])}
    run = subprocess.run(
        ["unshare", "--mount", "sh", "-c", mount, str(disk), sys.executable, str(code), str(disk), str(go)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env=environ,
    )
    assert "DISK [Errno 28]" in run.stdout, run.stderr
    raised = [line.split(maxsplit=3)[1:] for line in run.stdout.splitlines() if line.startswith("RAISED")]
    assert [(ours, name) for ours, name, _ in raised] == [
        ("True", "JobLostError"),
        ("True", "LaunchError"),
        ("True", "LaunchError"),
    ], run.stdout
    advice = f"{records.VARIABLE} to a folder on another disk"
    causes = ("Probably that disk was full", "could not be stored", "can't be written: [Errno 28]")
    for (*_, text), cause in zip(raised, causes, strict=True):
        assert cause in text
        assert advice in text
        assert str(disk) in text
