"""A job that is detached while its kernel ends."""

from __future__ import annotations

import contextlib
from pathlib import Path

import psutil
import pytest

from notebook_accel import notebook_launcher
from notebook_accel.launch.driver import detach
from notebook_accel.launch.journal import records
from tests.launch.own_processes import wait_until


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
    assert wait_until(lambda: not drivers(tmp_path))
    assert records.all_records() == []
