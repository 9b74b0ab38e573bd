"""A process that asked for it ends with its parent, whatever it is doing."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the system has no such signal")

PARENT = """
import os, signal, sys
from notebook_accel.launch.system import own_process

parent = os.getpid()
if os.fork() == 0:
    own_process.die_with_parent(parent)
    if "outlive" in sys.argv:
        own_process.outlive_parent()
    wait = '''
import os, time
os.write(1, b"waits ")
while os.getppid() == PARENT:
    time.sleep(0.01)
os.write(1, b"is alone")
'''.replace("PARENT", str(parent))
    if "exec" in sys.argv:
        os.execl(sys.executable, sys.executable, "-c", wait)
    exec(wait)
    os._exit(0)
while True:
    signal.pause()
"""


def words_of_a_child(*arguments: str) -> str:
    """What the child of a process writes that is killed as the child waits."""
    command = [sys.executable, "-c", PARENT, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        begun = parent.stdout.read(len("waits "))
        parent.kill()
        return begun + parent.stdout.read()  # the child has it open too


@pytest.mark.parametrize("then", ["wait", "exec"])
def test_a_process_ends_with_its_parent(then: str) -> None:
    assert words_of_a_child(then) == "waits "


def test_a_process_may_outlive_its_parent_after_all() -> None:
    assert words_of_a_child("outlive") == "waits is alone"


def test_a_process_whose_parent_has_ended_before_it_asked_ends_at_once() -> None:
    program = (
        "from notebook_accel.launch.system import own_process; own_process.die_with_parent(1 << 30); print('went on')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
