"""Keeps a worker that a rank forks from a deadlock of Python before 3.10.15 and 3.11.10.

Gloo's threads release the tensors of a collective that has ended. To release one that Python code has had, torch
registers the thread with Python, under a lock that has nothing to do with the GIL. A process that is forked in that
moment begins with the lock held, and waits for it forever (https://github.com/python/cpython/issues/112275). So a rank
forks once no other of its threads is at work: a thread that sleeps does not have the lock.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

_TASKS = Path("/proc/self/task")
_AT_WORK = ("R", "D")
"""The states of a thread that runs, wants to run, or waits for memory to be read."""
_PAUSE = 0.0005
"""Seconds from one look to the next, in which the other threads can have the GIL."""
longest = 0.05
"""Seconds after which a process is forked in any case: a thread of the user's may compute for as long as the rank."""


def install() -> None:
    """Makes each `os.fork` of this process wait, where Python is one of those."""
    version = sys.version_info[:3]
    if version < (3, 10, 15) or (3, 11) <= version < (3, 11, 10):
        os.register_at_fork(before=await_other_threads)


def await_other_threads() -> None:
    """Waits until no other thread of this process is at work, or for `longest`."""
    own = str(threading.get_native_id())
    until = time.monotonic() + longest
    while _is_one_at_work(own) and time.monotonic() < until:
        time.sleep(_PAUSE)


def _is_one_at_work(own: str) -> bool:
    try:
        others = [name for name in os.listdir(_TASKS) if name != own]
    except OSError:
        return False  # there is no /proc to ask
    return any(_state(name) in _AT_WORK for name in others)


def _state(task: str) -> str:
    """The state of a thread, a letter as in `man 5 proc`; empty if it has ended."""
    try:
        return (_TASKS / task / "stat").read_text().rpartition(") ")[2][:1]
    except OSError:
        return ""
