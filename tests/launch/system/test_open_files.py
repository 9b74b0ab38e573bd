"""Many ranks need more open files than a process may have at first."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys

import pytest

from notebook_accel.errors import LaunchError
from notebook_accel.launch.system import limits


@pytest.fixture
def allowed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The soft and the hard limit of open files of a pretended process that has as many open as this one."""
    there = len(os.listdir("/dev/fd"))
    found = [there + 100, there + 4000]
    monkeypatch.setattr(resource, "getrlimit", lambda what: tuple(found))
    monkeypatch.setattr(resource, "setrlimit", lambda what, wanted: found.__setitem__(slice(None), wanted))
    return found


def test_the_soft_limit_is_raised_as_far_as_ranks_need(allowed: list[int]):
    soft, hard = allowed
    limits.raise_file_limit(20)
    assert allowed == [soft, hard]
    limits.raise_file_limit(1000)
    assert soft + 900 <= allowed[0] < hard
    assert allowed[1] == hard


def test_what_the_hard_limit_forbids_is_an_error_that_says_what_to_raise(allowed: list[int]):
    with pytest.raises(LaunchError, match=r"open files in one process.*ulimit -Hn"):
        limits.raise_file_limit(5000)


def test_who_does_not_know_how_many_it_needs_may_have_all(allowed: list[int]):
    limits.raise_file_limit_fully()
    assert allowed[0] == allowed[1]


def test_a_process_that_can_open_nothing_more_is_told_so(allowed: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str) -> list[str]:
        raise OSError(errno.EMFILE, "Too many open files", path)

    monkeypatch.setattr(os, "listdir", refuse)
    allowed[0] = allowed[1]
    with pytest.raises(LaunchError, match=f"need {allowed[1] + 1} open files in one process, but .* {allowed[1]}\\."):
        limits.check_files(1)


CLOSE = """
import os
from notebook_accel.launch.system import limits

for number in (3, 7, 200):
    os.dup2(1, number)
del os.closerange  # it may try every number up to the limit
limits.close_from(7)
print([number for number in range(256) if os.path.exists(f"/dev/fd/{number}")])
"""


def test_open_descriptors_are_closed_from_a_number_on() -> None:
    ran = subprocess.run([sys.executable, "-c", CLOSE], capture_output=True, text=True, check=True)
    kept = eval(ran.stdout)
    assert {0, 1, 2, 3} <= set(kept)
    assert max(kept) < 7
