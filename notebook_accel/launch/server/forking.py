"""Makes forks of this process cheap: in time to fork, in time to end, and in memory that is not shared."""

from __future__ import annotations

import ctypes
import errno
import gc
import os
import socket
import sys
from collections.abc import Callable, Iterator
from functools import partial

from notebook_accel.launch.server.preloading import end_threads

_MADV_COLLAPSE = 25
_HUGE_PAGE = 2 * 2**20
_PERMANENT = (errno.EINVAL, errno.ENOSYS, errno.EPERM)
"""What is said where it cannot be done: of memory whose owner does not want it, or of all; else the system is busy."""


class Unwind(BaseException):
    """Takes a fork out of its parent's loop."""

    def __init__(self, role: Callable[[], object]) -> None:
        super().__init__()
        self.role = role
        """What the fork is to be, once everything of the parent lies behind it."""


def fork(role: Callable[[int], object], *, without: socket.socket | None = None) -> int:
    """Forks, and returns the child's process.

    The child is to become something else: it closes the socket `without`, which is the parent's end, and unwinds.

    Raises:
        Unwind: In the child: `become(parent)`.
    """
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        if without is not None:
            without.close()
        raise Unwind(partial(role, parent))
    return pid


def before_imports() -> None:
    """Has what is imported next leave nothing behind that forks would pay for, and be imported fast."""
    # OpenBLAS then loads without its pool of threads, which each fork would start anew, and spin in. A rank that is
    # to have several threads starts them as its limit is set.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    gc.disable()  # imports leave hardly any garbage, and looking for it takes a tenth of their time


def prepare() -> None:
    """Lets forks share as much of this process's memory as they can, for as long as they can."""
    gc.freeze()
    end_threads()  # now, rather than in the first launch


def use_huge_pages() -> Iterator[None]:
    """Moves this process's memory into huge pages, one at each step, where Linux 6.1 or later is willing.

    A fork copies one entry for a huge page where it copies 512 for small ones, and ends as much faster. All of it takes
    about a second.
    """
    if sys.platform != "linux":
        return
    collapse = ctypes.CDLL(None, use_errno=True).madvise
    with open("/proc/self/maps") as file:
        spans = [_private_span(line) for line in file]
    for begin, end in spans:
        for page in range(-(-begin // _HUGE_PAGE) * _HUGE_PAGE, end // _HUGE_PAGE * _HUGE_PAGE, _HUGE_PAGE):
            if (
                collapse(ctypes.c_void_p(page), ctypes.c_size_t(_HUGE_PAGE), _MADV_COLLAPSE)
                and ctypes.get_errno() in _PERMANENT
            ):
                break
            yield


def _private_span(line: str) -> tuple[int, int]:
    """The bounds of a line of `/proc/self/maps`; empty unless it is private, writable memory of no file."""
    span, access, _, _, inode, *name = line.split()
    if access != "rw-p" or inode != "0" or name not in ([], ["[heap]"]):
        return 0, 0
    begin, end = span.split("-")
    return int(begin, 16), int(end, 16)
