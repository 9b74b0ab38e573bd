"""Data that is written once, to memory files, and that other processes map as one piece.

A write holds the lock of the file's inode, so threads that write to the same file take turns. Large data is therefore
cut into stripes, one file each, and one thread writes each stripe.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import IO

from notebook_accel.hardware import cores
from notebook_accel.launch.system import own_process

_MOST_STRIPES = 8
"""More threads would wait for memory rather than for a processor."""
STRIPE = 64 * 2**20
"""Bytes of a stripe at least: to write them takes a hundred times as long as to start a thread."""
_MOST_AT_ONCE = 2**30
"""Bytes of one write or read; Linux takes no more than 2 GiB at once."""


def offsets(lengths: Sequence[int]) -> list[int]:
    """The offset at which each part begins, and last the size of all; they are page boundaries."""
    found = [0]
    for length in lengths:
        found.append(found[-1] + _whole_pages(length))
    return found


def write(parts: Sequence[memoryview]) -> list[int]:
    """Writes parts, each from a page boundary on; returns the descriptors of the stripes, in their order.

    Raises:
        OSError: There is no room.
    """
    starts = offsets([part.nbytes for part in parts])
    size = starts[-1]
    count = min(_MOST_STRIPES, size // STRIPE, cores.usable()) if size >= 2 * STRIPE else 1
    stripe = _whole_pages(-(-size // count))
    count = -(-size // stripe)
    fds: list[int] = []
    try:
        fds += [new_file() for _ in range(count)]

        def fill(index: int) -> None:
            begin, end = index * stripe, min(size, (index + 1) * stripe)
            os.truncate(fds[index], end - begin)
            for part, start in zip(parts, starts, strict=False):
                _write_all(fds[index], part[max(0, begin - start) : max(0, end - start)], max(0, start - begin))

        if count == 1:
            fill(0)
        else:
            with ThreadPoolExecutor(count, "notebook-accel-write") as pool:
                list(pool.map(fill, range(count)))
    except BaseException:
        close(fds)
        raise
    return fds


def read(fds: Sequence[int], start: int, length: int) -> bytes:
    """Bytes of what was written, across stripes."""
    chunks = []
    for fd, begin, end in _placed(fds):
        at, last = max(start, begin), min(start + length, end)
        while at < last:
            chunks.append(os.pread(fd, min(last - at, _MOST_AT_ONCE), at - begin))
            at += len(chunks[-1])
    return b"".join(chunks)


def read_all(fds: Sequence[int]) -> bytes:
    """All of it."""
    return read(fds, 0, sum(os.fstat(fd).st_size for fd in fds))


def map_private(fds: Sequence[int]) -> mmap.mmap:
    """Maps all of it copy-on-write: what a process writes there, others that map the same stripes do not see."""
    if len(fds) == 1:
        return mmap.mmap(fds[0], os.fstat(fds[0]).st_size, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
    placed = list(_placed(fds))
    whole = mmap.mmap(-1, placed[-1][2], mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(whole))
    for fd, begin, end in placed:
        own_process.map_over(address + begin, end - begin, fd)
    return whole


def close(fds: Sequence[int]) -> None:
    """Closes the stripes; mappings of them stay."""
    for fd in fds:
        os.close(fd)


def release(fds: Sequence[int]) -> None:
    """Closes stripes, and does not wait until the system has freed the memory of large ones: 0.2 s per GB."""
    if len(fds) == 1 or own_process.start_thread_if_allowed(partial(close, fds), "notebook-accel-release") is None:
        close(fds)


def _whole_pages(length: int) -> int:
    return -(-length // mmap.PAGESIZE) * mmap.PAGESIZE


def _write_all(fd: int, data: memoryview, at: int) -> None:
    written = 0
    while written < data.nbytes:
        written += os.pwrite(fd, data[written : written + _MOST_AT_ONCE], at + written)


def _placed(fds: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Each stripe, with the offsets of its begin and its end in the whole."""
    begin = 0
    for fd in fds:
        end = begin + os.fstat(fd).st_size
        yield fd, begin, end
        begin = end


def new_file() -> int:
    """The descriptor of a new file."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("notebook-accel", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def open_log() -> IO[bytes]:
    """A new file for the output of a process."""
    return os.fdopen(new_file(), "w+b")
