"""A process that asked for it ends with its parent, whatever it is doing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.launch.own_processes import alive, outlive

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the system has no such signal")

PARENT = """
import os, signal, sys
from notebook_accel.launch.system import libc

parent = os.getpid()
child = os.fork()
if child == 0:
    libc.die_with_parent(parent)
    if "outlive" in sys.argv:
        libc.outlive_parent()
    os.write(1, f"{os.getpid()}\\n".encode())
    if "exec" in sys.argv:
        os.execlp("sleep", "sleep", "1000")
while True:
    signal.pause()
"""


@contextmanager
def child_of_a_killed_parent(*arguments: str) -> Iterator[int]:
    command = [sys.executable, "-c", PARENT, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.kill()
        parent.wait()
        try:
            yield child
        finally:
            if alive([child]):
                os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("then", ["wait", "exec"])
def test_a_process_ends_with_its_parent(then: str) -> None:
    with child_of_a_killed_parent(then) as child:
        assert not outlive([child])


def test_a_process_may_outlive_its_parent_after_all() -> None:
    with child_of_a_killed_parent("outlive") as child:
        assert outlive([child], 0.5) == [child]


def test_a_process_whose_parent_has_ended_before_it_asked_ends_at_once() -> None:
    program = "from notebook_accel.launch.system import libc; libc.die_with_parent(1 << 30); print('went on')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
