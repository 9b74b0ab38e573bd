"""Keeps two training runs from saving to one folder at once: each would remove or continue the other's checkpoints.

A training run holds a lock (`flock`) on a file in its folder that names its process. The system releases the lock when
the process ends, however it ends. Where the file system has no locks, the file's text has to do: a process of this
machine that it names holds the folder as long as that process exists. Needs no torch.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from notebook_accel.errors import ConfigurationError
from notebook_accel.owner import Owner

NAME = ".notebook-accel.lock"
GRACE = 20.0
"""Seconds in which a training run that was killed, or is ending, has to release the folder."""
NOTICE_AFTER = 1.0
"""Seconds after which a training run says that it waits for the folder."""
_PAUSE = 0.05
_held: dict[str, FolderLock] = {}
"""By path: the locks of this process."""


@dataclass(frozen=True)
class _Holder:
    """The process that a lock's file names."""

    owner: str
    """An `Owner`, as text."""
    host: str
    job: str
    """The ID of its job; empty for a process that wasn't launched by `notebook_launcher`."""

    @classmethod
    def this(cls, job: str) -> _Holder:
        return cls(str(Owner.this()), socket.gethostname(), job)

    @property
    def process(self) -> Owner:
        return Owner.parse(self.owner)

    @property
    def may_be_gone(self) -> bool:
        """Whether its machine is another one, which may have crashed while it held a lock on a shared disk."""
        return not self.process.shares_kernel

    def runs(self) -> bool:
        """Whether it is known to be another process of this machine that exists."""
        return self.process.is_local and self.process.is_alive() and self.process != Owner.this()

    def __str__(self) -> str:
        where = "this machine" if self.process.is_local else f"the machine {self.host}"
        job = f" of the job {self.job}" if self.job else ""
        return f"process {self.process.pid} of {where}{job}"


class FolderLock:
    """A held folder.

    Args:
        path: The lock's file.
        fd: The open file.
    """

    def __init__(self, path: str, fd: int) -> None:
        self._path = path
        self._fd = fd

    def release(self) -> None:
        """Lets other training runs save to the folder, unless a later one of this process has taken it over."""
        if _held.get(self._path) is not self:
            return
        del _held[self._path]
        with contextlib.suppress(OSError):  # the folder is gone, or read-only
            if _is_current(self._path, self._fd):
                os.unlink(self._path)
        os.close(self._fd)

    def taken_over(self) -> FolderLock:
        """The same lock for a later training of this process."""
        _held[self._path] = new = FolderLock(self._path, self._fd)
        return new

    def forget(self) -> None:
        """Closes the file in a fork, which would otherwise hold the folder beyond the end of this process."""
        os.close(self._fd)


def acquire(folder: Path, job: str, report: Callable[[str], None]) -> FolderLock | None:
    """Takes a folder that exists, after `GRACE` seconds at most.

    Args:
        folder: The folder.
        job: The ID of this process's job.
        report: Shows a line to the user.

    Returns:
        What releases it; `None` if its file can't be written, or a process holds it that may be gone.

    Raises:
        ConfigurationError: Another training saves to it.
    """
    path = os.path.realpath(folder / NAME)
    if path in _held:  # of a loop that was left, or is suspended, in this process
        return _held[path].taken_over()
    began, noticed = time.monotonic(), False
    while True:
        try:
            fd, holder = _try(path)
        except OSError:  # the code that prepares the folder has reported that it can't be written to
            return None
        if fd is not None:
            _write(fd, _Holder.this(job))
            _held[path] = lock = FolderLock(path, fd)
            return lock
        waited = time.monotonic() - began
        if waited > GRACE:
            break
        if waited > NOTICE_AFTER and not noticed:
            noticed = True
            report(f"{_describe(folder, holder)}; waiting up to {GRACE:g} s for it to end")
        time.sleep(_PAUSE)
    if holder is None or not holder.may_be_gone:
        raise ConfigurationError(_refusal(folder, holder))
    report(
        f"WARNING: {_describe(folder, holder)}, unless that machine has crashed. If it still runs, each of the two "
        "training runs may remove or continue the checkpoints of the other: end one of them, or save to another folder"
    )
    return None


def _try(path: str) -> tuple[int | None, _Holder | None]:
    """The open file if the lock could be taken; otherwise, who holds it, as far as that is known."""
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        is_free = True
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            is_free = False
        except OSError:  # the file system has no locks
            pass
        holder = _read(fd)
        if is_free and not _is_current(path, fd):  # just removed by the training that held it
            os.close(fd)
            continue
        if is_free and (holder is None or not holder.runs()):
            return fd, None
        os.close(fd)
        return None, holder


def _is_current(path: str, fd: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(fd))
    except OSError:
        return False


def _read(fd: int) -> _Holder | None:
    try:
        holder = _Holder(**json.loads(os.pread(fd, 4096, 0)))
        holder.process  # noqa: B018  # raises if it is not one
    except (OSError, TypeError, ValueError):  # it is empty, or a full disk has cut it off
        return None
    return holder


def _write(fd: int, holder: _Holder) -> None:
    with contextlib.suppress(OSError):  # the disk is full; the lock holds all the same
        os.ftruncate(fd, 0)
        os.pwrite(fd, json.dumps(asdict(holder)).encode(), 0)


def _describe(folder: Path, holder: _Holder | None) -> str:
    who = "another process" if holder is None else str(holder)
    return f"{folder} is in use: {who} trains, and saves its checkpoints there"


def _refusal(folder: Path, holder: _Holder | None) -> str:
    if holder is not None and holder.job and holder.process.is_local:
        end = f"attach({holder.job!r}) shows it, and attach({holder.job!r}).cancel() stops it"
    else:
        end = "wait until it has ended, or end it (if it is a rank of %%accelerate cells, with %accelerate stop)"
    return (
        f"{_describe(folder, holder)}, so that each of the two training runs would remove or continue the checkpoints "
        f"of the other: {end}, or save to another folder"
    )


def _forget_all() -> None:
    for lock in _held.values():
        lock.forget()
    _held.clear()


os.register_at_fork(after_in_child=_forget_all)
