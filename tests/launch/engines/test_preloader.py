"""What ranks find imported that a plain Python process launches."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from notebook_accel.launch import engines
from notebook_accel.launch.engines import preloader

SCRIPT = """
import json
from notebook_accel import notebook_launcher
from notebook_accel.launch import engines
from notebook_accel.launch.engines import preloader
from tests import preloading

preloader.TRAINING = ("sched",)  # small ones take the place of those of seconds

def imported():
    import sys
    return [name in sys.modules for name in ("sched", "click")]

def preload():
    \"""Waits for the server that is to replace the first one; returns whether there is any.\"""
    is_any = engines.get().next is not None
    preloading.wait()
    return is_any

found = [notebook_launcher(imported, num_processes=1)[0], preload()]
import click
found += [notebook_launcher(imported, num_processes=1)[0], preload(), notebook_launcher(imported, num_processes=1)[0]]
print(json.dumps(found))
"""


def test_the_imports_of_a_script_are_preloaded_from_its_second_launch_on() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], check=True, capture_output=True, text=True, timeout=100)
    first, second, third = [False, False], [False, False], [True, True]
    assert json.loads(done.stdout) == [first, False, second, True, third]


def test_the_imports_of_a_process_are_found_in_a_folder_that_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted: list[str] = []

    class Engine:
        def preload(self, modules: Sequence[str]) -> None:
            wanted.extend(modules)

    monkeypatch.setattr(engines, "default", Engine)
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    preloader.Preloader().update()
    assert "pytest" in wanted
    assert "sys" not in wanted  # whose origin is "built-in"
