"""Many ranks need more open files than a process may have at first."""

from __future__ import annotations

import errno
import os
import resource

import pytest

from notebook_accel.errors import LaunchError
from notebook_accel.launch.system import open_file_limit


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The soft and the hard limit of open files of a pretended process that has as many open as this one."""
    there = len(os.listdir("/dev/fd"))
    found = [there + 100, there + 4000]
    monkeypatch.setattr(resource, "getrlimit", lambda what: tuple(found))
    monkeypatch.setattr(resource, "setrlimit", lambda what, wanted: found.__setitem__(slice(None), wanted))
    return found


def test_the_soft_limit_is_raised_as_far_as_ranks_need(limits: list[int]):
    soft, hard = limits
    open_file_limit.raise_limit(20)
    assert limits == [soft, hard]
    open_file_limit.raise_limit(1000)
    assert soft + 900 <= limits[0] < hard
    assert limits[1] == hard


def test_what_the_hard_limit_forbids_is_an_error_that_says_what_to_raise(limits: list[int]):
    with pytest.raises(LaunchError, match=r"open files in one process.*ulimit -Hn"):
        open_file_limit.raise_limit(5000)


def test_who_does_not_know_how_many_it_needs_may_have_all(limits: list[int]):
    open_file_limit.raise_to_hard_limit()
    assert limits[0] == limits[1]


def test_a_process_that_can_open_nothing_more_is_told_so(limits: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str) -> list[str]:
        raise OSError(errno.EMFILE, "Too many open files", path)

    monkeypatch.setattr(os, "listdir", refuse)
    limits[0] = limits[1]
    with pytest.raises(LaunchError, match=f"need {limits[1] + 1} open files in one process, but .* {limits[1]}\\."):
        open_file_limit.check(1)
