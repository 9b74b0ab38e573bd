"""What ranks find imported that a plain Python process launches."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from notebook_accel.launch import engines
from notebook_accel.launch.engines import preloader
from notebook_accel.launch.wire import payload

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


@pytest.mark.parametrize(
    ("code", "trains"),
    [
        ("loss.backward()", True),
        ("for each in data:\n        [step.backward() for step in each]", True),
        ("from notebook_accel import Accelerator", True),
        ("Trainer(model).train()", True),
        ("torch.optim.SGD(model.parameters(), 0.1).step()", True),
        ("torch.ones(3).sum()", False),
    ],
)
def test_a_function_needs_the_modules_of_a_training_if_it_uses_a_name_of_one(code: str, *, trains: bool) -> None:
    found: dict[str, Callable[..., object]] = {}
    exec(f"def work(data, model, loss):\n    {code}", found)
    with payload.pack(found["work"], (), {}) as packed:
        assert preloader.needed(packed.used_names) == (preloader.TRAINING if trains else ())


SLOW = """
import os, time
while not os.path.exists(f"{os.path.dirname(__file__)}/go"):
    time.sleep(0.01)
"""

IMPATIENT = """
import json, sys
from notebook_accel import notebook_launcher
from notebook_accel.launch import engines
from notebook_accel.launch.driver import launch
from notebook_accel.launch.engines import preloader

preloader.TRAINING = ("slow_to_import",)

def is_imported():
    import sys
    return "slow_to_import" in sys.modules

def trains():
    import sys, torch
    assert torch.optim
    return "slow_to_import" in sys.modules

def launched(function, **options):
    return notebook_launcher(function, num_processes=1, **options)

engines.default().warm()
preloader.Preloader().update()
found = [launched(is_imported)]
launch.IMPORT_TIMEOUT = 0.1
found.append(launched(trains)[0])
launch.IMPORT_TIMEOUT = 100.0
job = launched(trains, block=False)
job.cancel()
job.wait()
found.append(job.status.value)
job = launched(trains, block=False)
open(sys.argv[1] + "/go", "w").close()
found.append(job.result(60)[0])
print(json.dumps(found))
"""


def test_a_training_starts_once_what_it_needs_is_imported_and_nothing_else_waits_for_that(tmp_path: Path) -> None:
    (tmp_path / "slow_to_import.py").write_text(SLOW)
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-c", IMPATIENT, str(tmp_path)]
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, timeout=100, env={**os.environ, "PYTHONPATH": path}
    )
    at_once, after_a_while, cancelled, imported = [False], False, "cancelled", True
    assert json.loads(done.stdout) == [at_once, after_a_while, cancelled, imported]
