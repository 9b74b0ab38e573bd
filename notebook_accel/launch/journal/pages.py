"""What Jupyter's pages and the kernels tell each other through the disk: which pages draw jobs, and where.

A page with this package's extension announces itself through its Jupyter server, which leaves a file beside the jobs. A
kernel that finds the file of the page that has sent its cell knows that the page draws jobs, and that the page's server
reads them in the folder, and in the format, in which this kernel records them.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from notebook_accel.launch.journal import records
from notebook_accel.launch.journal.private_files import make_private, open_private
from notebook_accel.launch.journal.records import Record
from notebook_accel.launch.journal.state_file import FORMAT

SESSION = r"[0-9A-Za-z-]{8,64}"
"""The pattern of an ID of a page's connection to a kernel."""
_KEPT = 30 * 24 * 3600.0
"""Seconds after which an announcement is removed; a page makes another one whenever it connects to its kernel."""
_MOST_JOBS = 50
"""The most jobs that are looked through for outputs."""
_MOST_OUTPUTS = 100
"""The most outputs of a job that are noted."""


def announce(session: str) -> None:
    """Records that a page draws jobs.

    Args:
        session: The ID of the page's connection to a kernel, which the page's messages to the kernel carry.

    Raises:
        ValueError: It isn't such an ID.
        OSError: It can't be recorded.
    """
    if not re.fullmatch(SESSION, session):
        raise ValueError(session)
    folder = _folder()
    make_private(folder)
    with open(folder / session, "w", opener=open_private) as file:
        file.write(str(FORMAT))
    before = time.time() - _KEPT
    for entry in os.scandir(folder):
        with contextlib.suppress(OSError):
            if entry.stat().st_mtime < before:
                os.unlink(entry)


def draws_jobs(session: str) -> bool:
    """Whether the page with this connection draws the jobs that this process records."""
    if not re.fullmatch(SESSION, session):
        return False
    try:
        return (_folder() / session).read_text() == str(FORMAT)
    except (OSError, ValueError):
        return False


@dataclass(frozen=True)
class Output:
    """An output of a notebook that shows a job."""

    notebook: str
    """The notebook's path in its Jupyter server."""
    cell: str
    """The ID of the cell."""
    at: float
    """When it was drawn first, in seconds since the epoch."""


def note_output(record: Record, notebook: str, cell: str) -> None:
    """Records that a page shows a job in a cell, for pages that open the notebook before it is saved."""
    known = list(outputs(record))
    if len(known) < _MOST_OUTPUTS and (notebook, cell) not in {(each.notebook, each.cell) for each in known}:
        line = json.dumps(asdict(Output(notebook, cell, time.time())))
        with contextlib.suppress(OSError), open(record.outputs, "a", opener=open_private) as file:
            file.write(f"{line}\n")


def outputs(record: Record) -> Iterator[Output]:
    """The outputs that show a job, the first one first."""
    with contextlib.suppress(OSError, ValueError, TypeError):  # damaged from there on
        for line in record.outputs.read_text().splitlines():
            yield Output(**json.loads(line))


def outputs_of(notebook: str) -> Iterator[tuple[Record, Output]]:
    """The outputs of a notebook that show one of the last jobs, the oldest job first."""
    for record in reversed(records.last_records(_MOST_JOBS)):
        yield from ((record, each) for each in outputs(record) if each.notebook == notebook)


def _folder() -> Path:
    return records.folder().parent / "pages"
