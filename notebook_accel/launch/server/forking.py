"""Makes forks of the server cheap: quick to fork, quick to exit, and with most of their memory shared."""

from __future__ import annotations

import ctypes
import errno
import gc
import os
import signal
import socket
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import partial

from notebook_accel.launch.server.preloading import end_threads
from notebook_accel.launch.wire.event_loop import EventLoop, Wakeup

_MADV_COLLAPSE = 25
_HUGE_PAGE = 2 * 2**20
_PERMANENT = (errno.EINVAL, errno.ENOSYS, errno.EPERM)
"""Permanent errors of `madvise`, for this memory or on this system. Any other error means that the memory is busy."""

_shared_pages: set[int] = set()
"""The addresses of the pages that no fork is to move."""


class Unwind(BaseException):
    """Unwinds the stack of a fork, so that it leaves the frames and `finally` blocks of the server's loop behind."""

    def __init__(self, role: Callable[[], object]) -> None:
        super().__init__()
        self.role = role
        """The function that the fork runs once the stack is unwound."""


def fork(role: Callable[[int], object], *, without: socket.socket | None = None) -> int:
    """Forks, and returns the child's process ID.

    The child closes the socket `without`, which is the parent's end, and unwinds to run its role.

    Raises:
        Unwind: In the child, with `role(parent)`.
    """
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        if without is not None:
            without.close()
        raise Unwind(partial(role, parent))
    return pid


class ForkLoop(EventLoop, ABC):
    """The event loop of a process that forks itself, and that notices how its children end."""

    def __init__(self) -> None:
        super().__init__()
        self._child_ended = Wakeup()

    def run(self) -> Callable[[], object]:
        """Serves until the process ends. Returns only in a fork, with the role that it takes on."""
        self._child_ended.wake_on_signals()
        signal.signal(signal.SIGCHLD, lambda *_: None)
        # The kernel's parent, or a package during its import, may have blocked signals, and ranks inherit the mask.
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        self.register(self._child_ended, self._on_children)
        try:
            self._serve()
        except Unwind as fork:
            self._close_in_child()
            return fork.role
        os._exit(0)

    @abstractmethod
    def _serve(self) -> None:
        """Serves, by calls of `run_once`, until the process ends."""

    @abstractmethod
    def _reap(self) -> None:
        """Called when children have ended."""

    def _on_children(self) -> None:
        self._child_ended.clear()
        self._reap()

    def _close_in_child(self) -> None:
        """Closes, in a fork, what belongs to this process alone."""
        signal.set_wakeup_fd(-1)
        self._child_ended.close()


def before_imports() -> None:
    """Prepares for imports, so that they are fast and leave nothing behind that every fork would pay for."""
    # OpenBLAS then loads without its thread pool, which each fork would otherwise start again and spin in. A rank that
    # may have several threads starts them when its limit is set.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    gc.disable()  # imports leave hardly any garbage, but collecting it takes a tenth of their time


def prepare() -> None:
    """Prepares for forks, so that their garbage collectors do not write to, and thereby copy, shared pages."""
    gc.freeze()
    end_threads()  # takes milliseconds, so it is done before the first launch


def use_huge_pages(*, shared: bool = False) -> Iterator[None]:
    """Moves this process's memory into huge pages, one at each step, where Linux 6.1 or later can.

    A fork copies one page table entry for a huge page instead of 512 for small pages, and exits faster to the same
    degree. Moving everything takes about a second.

    Args:
        shared: Whether forks are to leave the pages where they are, since to move one is to copy it.
    """
    if sys.platform != "linux":
        return
    collapse = ctypes.CDLL(None, use_errno=True).madvise
    with open("/proc/self/maps") as file:
        spans = [_private_span(line) for line in file]
    for begin, end in spans:
        for page in range(-(-begin // _HUGE_PAGE) * _HUGE_PAGE, end // _HUGE_PAGE * _HUGE_PAGE, _HUGE_PAGE):
            if page in _shared_pages:
                continue
            if shared:
                _shared_pages.add(page)
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
