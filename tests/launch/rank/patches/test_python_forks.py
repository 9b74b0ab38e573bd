"""That a rank forks while none of its other threads is at work."""

from __future__ import annotations

import hashlib
import os
import sys
import threading
import time
from pathlib import Path

import pytest

from notebook_accel import notebook_launcher
from notebook_accel.launch.rank.patches import python_forks

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="this system has no /proc")
IS_NEEDED = sys.version_info < (3, 10, 15) or (3, 11) <= sys.version_info < (3, 11, 10)


def start_computing() -> threading.Thread:
    """Starts a thread that computes without the GIL, for half a second or more."""
    thread = threading.Thread(target=lambda: hashlib.pbkdf2_hmac("sha256", b"", b"", 500_000))
    thread.start()
    while not is_computing(thread):
        time.sleep(0.005)
    time.sleep(0.02)  # it may have been about to begin
    return thread


def is_computing(thread: threading.Thread) -> bool:
    try:
        return Path(f"/proc/self/task/{thread.native_id}/stat").read_text().rpartition(") ")[2][0] == "R"
    except OSError:  # it has ended
        return False


def test_it_waits_until_the_others_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_forks, "longest", 60)
    thread = start_computing()
    python_forks.await_other_threads()
    assert not is_computing(thread)
    thread.join()


def test_it_does_not_wait_for_a_thread_that_computes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_forks, "longest", 0.01)
    thread = start_computing()
    python_forks.await_other_threads()
    assert thread.is_alive()
    thread.join()


def fork_beside_a_thread() -> bool:
    """On a rank: whether its other thread was still computing when it forked."""
    python_forks.longest = 60
    thread = start_computing()
    if (worker := os.fork()) == 0:
        os._exit(0)
    found = is_computing(thread)
    os.waitpid(worker, 0)
    thread.join()
    return found


@pytest.mark.skipif(not IS_NEEDED, reason="this version of Python forks safely itself")
def test_a_rank_forks_while_its_other_threads_sleep() -> None:
    assert notebook_launcher(fork_beside_a_thread, num_processes=1, device="cpu") == [False]
