"""Whether this system can move memory into huge pages, and how much of a process is in some."""

import platform
import re
from pathlib import Path


def are_supported() -> bool:
    setting = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    version = tuple(map(int, re.findall(r"\d+", platform.release())[:2]))
    return version >= (6, 1) and setting.exists() and "[never]" not in setting.read_text()


def kilobytes(pid: int) -> int:
    found = re.search(r"AnonHugePages: +(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text())
    assert found
    return int(found[1])
