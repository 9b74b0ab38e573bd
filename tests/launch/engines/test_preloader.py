"""What ranks find imported that a plain Python process launches."""

import json
import subprocess
import sys

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
