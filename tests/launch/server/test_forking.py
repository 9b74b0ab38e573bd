"""What makes forks of a process cheap."""

import re
import subprocess
import sys

import pytest

from tests.launch.server import huge_pages

MANY = 16 * 2**20
MOVES = f"""
import ctypes, mmap
from notebook_accel.launch.server import forking

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
for _ in range({MANY} // 65536):
    libc.memset(ctypes.c_void_p(libc.malloc(65536)), 1, ctypes.c_size_t(65536))

def fill(bytes):
    found = mmap.mmap(-1, bytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    found.madvise(mmap.MADV_NOHUGEPAGE)
    found.write(b"1" * bytes)
    return found

# What is mapped later lies lower, and comes first.
last = fill({MANY})
last.madvise(mmap.MADV_HUGEPAGE)
refuses = fill({MANY})
for _ in forking.use_huge_pages():
    pass
print(open("/proc/self/smaps").read())
"""


def test_memory_moves_into_huge_pages_but_for_what_refuses() -> None:
    if not huge_pages.are_supported():
        pytest.skip("this system cannot move memory into huge pages")
    said = subprocess.run([sys.executable, "-c", MOVES], stdout=subprocess.PIPE, check=True, text=True).stdout
    spans = re.split(r"(?m)^(?=[0-9a-f]+-[0-9a-f]+ )", said)
    huge = {tuple(span.splitlines()[0].split()[5:]): 0 for span in spans if span.strip()}
    for span in filter(str.strip, spans):
        found = re.search(r"AnonHugePages: +(\d+) kB", span)
        assert found
        huge[tuple(span.splitlines()[0].split()[5:])] += int(found[1]) * 1024
    assert huge[("[heap]",)] >= MANY / 2
    assert huge[()] >= MANY / 2
