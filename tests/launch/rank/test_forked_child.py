"""What becomes of a process that the user's function forks, and that leaves the function."""

from __future__ import annotations

import os
import sys

from notebook_accel import notebook_launcher


def status_of(ending: str) -> int:
    """Forks, and returns in the rank how the fork ended."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    sys.stdout.write(f"fork: {ending}")
    if ending == "raises":
        raise ValueError("in the fork")
    if ending == "exits":
        sys.exit(3)
    if ending == "says why":
        sys.exit("no more data")
    return 7


def run(ending: str) -> tuple[list[int], str]:
    job = notebook_launcher(status_of, (ending,), 1, device="cpu", block=False)
    return job.result(), job.log()


def test_a_fork_of_a_rank_that_returns_ends() -> None:
    found, log = run("returns")
    assert found == [0]
    assert log == "[0] fork: returns\n"


def test_a_fork_of_a_rank_that_raises_shows_its_exception_without_internal_frames() -> None:
    found, log = run("raises")
    assert found == [1]
    assert "A process that the code has forked ended with an exception:" in log
    assert "[0] ValueError: in the fork\n" in log
    assert log.count('  File "') == 1
    assert "in status_of" in log


def test_a_fork_of_a_rank_that_exits_has_its_exit_status() -> None:
    assert run("exits")[0] == [3]
    found, log = run("says why")
    assert found == [1]
    assert "no more data" in log
