"""Removes the oldest jobs on disk, once all together are larger than a limit."""

from __future__ import annotations

import os
import re
from pathlib import Path

from notebook_accel.launch.journal import marks, records
from notebook_accel.launch.journal.records import Record
from notebook_accel.launch.show import console

VARIABLE = "NOTEBOOK_ACCEL_STATE_LIMIT"
MOST_JOBS = 1000
"""However small they are: a launch looks for jobs that run, and lists of jobs have to stay fast."""
_DEFAULT = 10**9
"""Bytes."""
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}

known_sizes: dict[Path, dict[str, int]] = {}
"""By the folder of all jobs, and the job's: the sizes of jobs that have ended, which do not change."""
_warned: set[str] = set()


def prune() -> None:
    """Removes jobs that exceed the limit, besides the last one; not those that run, that are pinned, or in use here."""
    limit, used = _limit(), 0
    parent = records.folder()
    known = known_sizes.setdefault(parent, {})
    older = records.names(parent)[-2::-1]
    sizes = [known[name] if name in known else _size(parent, name) for name in older]
    if sum(sizes) <= limit and len(older) + 1 < MOST_JOBS:
        return
    pinned = {job for job, each in marks.every().items() if each.pinned}
    for number, (name, size) in enumerate(zip(older, sizes, strict=True), 2):
        is_kept = used + size <= limit and number < MOST_JOBS
        record = Record(parent / name) if not is_kept else None
        if record is None or records.is_in_use(record) or record.may_run() or record.id in pinned:
            used += size
        else:
            record.remove()
            known.pop(name, None)


def _limit() -> int:
    """The limit in bytes; a value that is not a size is reported once, and has no effect."""
    given = os.environ.get(VARIABLE, "")
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)B?\s*", given.upper())
    if match is not None:
        return int(float(match[1]) * _UNITS[match[2]])
    if given and given not in _warned:
        _warned.add(given)
        console.current.notice(f"{VARIABLE}={given!r} is not a size such as 500MB or 2GB: 1GB of jobs are kept")
    return _DEFAULT


def _size(parent: Path, name: str) -> int:
    path = f"{parent}/{name}"
    try:
        with os.scandir(path) as files:
            found = sum(file.stat(follow_symlinks=False).st_size for file in files)
    except OSError:  # just removed
        return 0
    if not os.path.lexists(f"{path}/running"):
        known_sizes[parent][name] = found
    return found
