"""The base server that the kernels and commands of a run of the tests share, as those of a user do."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil
import pytest

from notebook_accel.launch.engines import base_server

_FOLDER = "TESTS_SERVER_FOLDER"
"""The variable that tells the workers of pytest-xdist the folder of the server, which is one for all of them."""
_IDLE = 600.0
"""Seconds after which it ends by itself, should the run be killed."""
_START = f"""
import os, time
from notebook_accel.launch.engines import base_server

base_server.start(os.environ, idle={_IDLE})
while base_server.of_this_process() is None:
    time.sleep(0.02)
"""
_STOP = "from notebook_accel.launch.engines import base_server; base_server.stop()"


@functools.cache
def environment(python: str = sys.executable) -> Mapping[str, str]:
    """What a process of this interpreter needs in its environment to find the base server, which takes requests.

    It lies in a folder of the run's own, so that it is none of the user's, nor that of other runs. Where no tests run,
    as when pictures are taken, nothing is shared.
    """
    if sys.platform != "linux" or _FOLDER not in os.environ:
        return {base_server.VARIABLE: "0"}
    found = {"TMPDIR": os.environ[_FOLDER], base_server.VARIABLE: "1"}
    _run(python, _START, found)
    return found


@contextlib.contextmanager
def used() -> Iterator[None]:
    """What this process starts in the meantime finds the base server, and so do its own launches."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment().items():
            patch.setenv(name, value)
        yield


def begin() -> None:
    """Makes the folder in which the first that needs a server starts it."""
    os.environ[_FOLDER] = tempfile.mkdtemp(prefix="nb-", dir="/tmp")  # short, because the paths of Unix sockets are


def end() -> None:
    """Ends all that there are, and removes their folder."""
    folder = os.environ.pop(_FOLDER)
    if os.listdir(folder):
        _run(sys.executable, _STOP, {"TMPDIR": folder})
    shutil.rmtree(folder, ignore_errors=True)


def is_base(process: psutil.Process) -> bool:
    """Whether it is a base server, or one's other half: a kernel starts one if its variables differ, for later ones."""
    with contextlib.suppress(psutil.Error, OSError):
        return _holds_lock(process.pid) or (os.getsid(process.pid) != process.pid and _holds_lock(process.ppid()))
    return False


def _holds_lock(pid: int) -> bool:
    links = [os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir()]
    return any(link.endswith(".lock") and f"/notebook-accel-{os.geteuid()}/" in link for link in links)


def _run(python: str, code: str, changes: Mapping[str, str]) -> None:
    subprocess.run([python, "-c", code], cwd="/", env={**os.environ, **changes}, check=True, timeout=100)
