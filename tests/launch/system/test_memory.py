"""Data in several memory files: it is written by as many threads, and is one piece for who maps it."""

from __future__ import annotations

import mmap
import os
import random
import threading
from collections.abc import Iterator

import pytest

from notebook_accel.hardware import cores
from notebook_accel.launch.system import memory
from tests.live_notebook import wait_until

PAGE = mmap.PAGESIZE
LENGTHS = [3, 2 * PAGE, 0, 5 * PAGE + 1, 7 * PAGE - 1]  # 16 pages in all


@pytest.fixture(params=[1, 2, 3, 7, 8], ids="{} cores".format)
def stripes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """How many files of equal length the parts take, on a machine of some cores; none is left open."""
    monkeypatch.setattr(memory, "STRIPE", PAGE)
    monkeypatch.setattr(cores, "usable", lambda: request.param)
    before = os.listdir("/dev/fd")
    yield {7: 6}.get(request.param, request.param)
    assert os.listdir("/dev/fd") == before


@pytest.fixture
def parts() -> list[memoryview]:
    return [memoryview(random.randbytes(length)) for length in LENGTHS]


def test_parts_come_back_wherever_stripes_begin(stripes: int, parts: list[memoryview]) -> None:
    fds = memory.write(parts)
    try:
        assert len(fds) == stripes
        starts = memory.offsets(LENGTHS)
        mapped = memory.map_private(fds)
        assert len(mapped) == starts[-1]
        for start, part in zip(starts, parts, strict=False):
            assert mapped[start : start + part.nbytes] == part
            assert memory.read(fds, start, part.nbytes) == part
        assert memory.read_all(fds) == mapped[:]
        mapped[:] = bytes(len(mapped))
        assert memory.read(fds, starts[4], LENGTHS[4]) == parts[4], "it has been written through a mapping"
        mapped.close()
    finally:
        memory.close(fds)


def test_a_mapping_needs_its_files_no_more_and_is_freed_whole(stripes: int, parts: list[memoryview]) -> None:
    def mappings() -> int:
        with open("/proc/self/maps") as file:
            return sum("notebook-accel" in line for line in file)

    before = mappings()
    fds = memory.write(parts)
    mapped = memory.map_private(fds)
    memory.close(fds)
    assert mappings() == before + stripes
    assert mapped[-PAGE:] == bytes(parts[-1][-PAGE + 1 :]) + bytes(1)
    mapped.close()
    assert mappings() == before


@pytest.mark.usefixtures("stripes")
def test_what_finds_no_room_leaves_no_file(monkeypatch: pytest.MonkeyPatch, parts: list[memoryview]) -> None:
    def refuse(fd: int, data: memoryview, at: int) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", refuse)
    with pytest.raises(OSError, match="No space left"):
        memory.write(parts)


def test_little_data_takes_one_file() -> None:
    fds = memory.write([memoryview(bytes(PAGE))])
    memory.close(fds)
    assert len(fds) == 1


@pytest.mark.usefixtures("stripes")
def test_released_files_are_closed_soon(parts: list[memoryview]) -> None:
    before = len(os.listdir("/dev/fd"))
    memory.release(memory.write(parts))
    wait_until(lambda: len(os.listdir("/dev/fd")) == before)


@pytest.mark.usefixtures("stripes")
def test_released_files_are_closed_if_no_thread_can_start(
    parts: list[memoryview], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = len(os.listdir("/dev/fd"))
    fds = memory.write(parts)

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    memory.release(fds)
    assert len(os.listdir("/dev/fd")) == before
