"""Whether this system can move memory into huge pages, and how much of a process is in some."""

import mmap
import platform
import re
from pathlib import Path

_MADV_COLLAPSE = 25
_ENOUGH = 64 * 2**20
"""More than a test moves."""


def are_supported() -> bool:
    """Whether there are such pages, and enough of them now: memory may be in too many pieces."""
    setting = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    version = tuple(map(int, re.findall(r"\d+", platform.release())[:2]))
    if version < (6, 1) or not setting.exists() or "[never]" in setting.read_text():
        return False
    with mmap.mmap(-1, _ENOUGH, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory.write(b"1" * _ENOUGH)
        try:
            memory.madvise(_MADV_COLLAPSE)
        except OSError:
            return False
    return True


def kilobytes(pid: int) -> int:
    found = re.search(r"AnonHugePages: +(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text())
    assert found
    return int(found[1])
