"""What users say about their jobs in a page: another name, notes, and a pin. A file for each, beside the jobs."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from notebook_accel.config import kinds
from notebook_accel.errors import ConfigurationError
from notebook_accel.events import JobStarted
from notebook_accel.launch.journal import records
from notebook_accel.launch.journal.private_files import make_private, open_private
from notebook_accel.launch.journal.records import Record


@dataclass(frozen=True)
class Marks:
    """The marks of one job."""

    title: str = ""
    """What the job is called; empty if it keeps the name that its launch gave it."""
    notes: str | None = None
    """Its notes; `None` if it keeps those of its launch."""
    pinned: bool = False
    """Whether it comes first in the list, and is kept, however old it is."""

    def on(self, start: JobStarted) -> JobStarted:
        """The start of a job as its user has marked the job."""
        return replace(start, title=self.title or start.title, notes=start.notes if self.notes is None else self.notes)

    @classmethod
    def of(cls, record: Record) -> Marks:
        """Those that a job has."""
        return _read(_folder() / record.id)

    def change(self, given: dict[str, Any]) -> Marks:
        """Other marks.

        Args:
            given: What changes, by name.

        Raises:
            ConfigurationError: There is no such mark, or its value isn't valid.
        """
        checks: dict[str, Callable[[Any], Any]] = {
            "title": lambda text: kinds.title.check("name", text) if text != "" else "",
            "notes": lambda text: kinds.notes.check("notes", text) if text else text,
            "pinned": lambda flag: kinds.flag.check("pinned", flag),
        }
        unknown = given.keys() - checks.keys()
        if unknown:
            raise ConfigurationError(
                f"a job has no {', '.join(sorted(unknown))}; what can be marked: {', '.join(checks)}"
            )
        return replace(self, **{name: checks[name](value) for name, value in given.items()})


def every() -> dict[str, Marks]:
    """The marks of all jobs that have some, by ID."""
    try:
        names = os.listdir(_folder())
    except OSError:
        return {}
    return {name: _read(_folder() / name) for name in names}


def change(record: Record, given: dict[str, Any]) -> None:
    """Changes marks of a job, and forgets those of jobs that are gone.

    Raises:
        ConfigurationError: There is no such mark, or its value isn't valid.
        OSError: They can't be written.
    """
    marks, folder = Marks.of(record).change(given), _folder()
    make_private(folder)
    new = folder / f"new-{record.id}"
    with open(new, "w", opener=open_private) as file:
        json.dump(asdict(marks), file)
    new.replace(folder / record.id)
    for gone in set(os.listdir(folder)) - {each.id for each in records.all_records()}:
        with contextlib.suppress(OSError):
            os.unlink(folder / gone)


def _read(path: Path) -> Marks:
    with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):  # there are none, or they are damaged
        return Marks().change(json.loads(path.read_text()))
    return Marks()


def _folder() -> Path:
    return records.folder().parent / "marks"
