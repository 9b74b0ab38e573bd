"""Launches a job again in another kernel, which then continues from its checkpoints: `%accelerate resume`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from notebook_accel.config import remote_folders
from notebook_accel.errors import ConfigurationError, JobLostError
from notebook_accel.launch.driver import launcher, stored_code
from notebook_accel.launch.job import rules
from notebook_accel.launch.job.job_state import Status
from notebook_accel.launch.job.text import date, title
from notebook_accel.launch.journal import records
from notebook_accel.launch.journal.job_summary import JobSummary, summarize
from notebook_accel.launch.journal.records import Record
from notebook_accel.launch.journal.saved_launch import PYTHON, SavedLaunch
from notebook_accel.launch.wire import cell_names, payload, pickling, stack_frames
from notebook_accel.launch.wire.payload import Payload, WithArguments


@dataclass(frozen=True)
class Checkpointed:
    """A job that saves checkpoints."""

    record: Record
    summary: JobSummary
    folder: str
    """The folder of its checkpoints."""
    origin: str
    """The notebook that launched it."""

    def __str__(self) -> str:
        return f"{self.summary.title} ({self.summary.id}, of {date(self.summary.started)}, {self.summary.status.value})"


def find(job_id: str | None, origin: str) -> Checkpointed:
    """The job whose ID begins with `job_id`; without one, the last of a notebook that did not end well.

    A job whose training a later one with the same folder has finished counts as finished.

    Raises:
        ConfigurationError: There is none, it is done, or a job with the same folder runs.
    """
    every = _all()
    if job_id is None:
        own = [each for each in every if each.origin == origin]
        unfinished = _unfinished(own)
        if not unfinished:
            raise ConfigurationError(_explain_none(own, [each for each in every if each.origin != origin]))
        found = unfinished[0]
    else:
        found = _named(records.find(job_id, origin), every)
    for each in every:
        if each.folder == found.folder and not each.summary.status.ended:
            raise ConfigurationError(
                f"{each} still runs, and saves to {each.folder}: %accelerate attach {each.summary.id} shows it"
            )
    return found


def unfinished_ids() -> list[str]:
    """The IDs of all jobs that can be resumed, the newest first."""
    return [each.summary.id for each in _unfinished(_all())]


def _all() -> list[Checkpointed]:
    """All jobs that save checkpoints, the newest first."""
    found = []
    for record in reversed(records.all_records()):
        try:
            head = record.head()
            if head.checkpoint_dir:
                found.append(Checkpointed(record, summarize(record), head.checkpoint_dir, head.origin))
        except JobLostError:  # written by another version of this package, or just removed
            continue
    return found


def _unfinished(jobs: Sequence[Checkpointed]) -> list[Checkpointed]:
    found, finished = [], set()
    for each in jobs:
        if each.summary.status is Status.DONE:
            finished.add(each.folder)
        elif each.summary.status.ended and each.folder not in finished:
            found.append(each)
    return found


def _named(record: Record, every: Sequence[Checkpointed]) -> Checkpointed:
    found = next((each for each in every if each.record == record), None)
    if found is None:
        raise ConfigurationError(
            f"job {record.id} saved no checkpoints, so there is nothing to resume: launch it again, with checkpoint="
        )
    if found.summary.status.ended and found not in _unfinished(every):
        raise ConfigurationError(
            f"{found} succeeded, or a later job with its folder, {found.folder}, did: there is nothing to resume. To "
            "train for more epochs, launch it again with the same folder"
        )
    return found


def _explain_none(own: Sequence[Checkpointed], others: Sequence[Checkpointed]) -> str:
    running = [each for each in own if not each.summary.status.ended]
    if running:
        return f"{running[0]} still runs: %accelerate attach {running[0].summary.id} shows it"
    text = "there is nothing to resume: no job of this notebook that saves checkpoints (checkpoint=) ended unfinished"
    elsewhere = _unfinished(others)[:3]
    if not elsewhere:
        return f"{text}, according to {records.folder()}"
    jobs = "; ".join(map(str, elsewhere))
    return f"{text}. Of other notebooks there are {jobs}: %accelerate resume {elsewhere[0].summary.id}"


def check(saved: SavedLaunch, *, current_code: bool) -> None:
    """Checks that a job can be launched again here.

    Raises:
        ConfigurationError: It can't, with this choice of code.
    """
    name = title(saved.name)
    if current_code and not saved.function:
        raise ConfigurationError(
            f"{name} was not launched as a named function of the notebook: to run it with the current code, "
            f"launch it again with checkpoint={saved.checkpoint_dir!r}"
        )
    if current_code and not callable(pickling.find(saved.function)):
        raise ConfigurationError(
            f"this notebook does not define {saved.function}: run its cell first, or choose --saved-code"
        )
    if not current_code and saved.python != PYTHON:
        raise ConfigurationError(
            f"{name} was stored by Python {saved.python}, whose code Python {PYTHON} can't run: define it here, and "
            "choose --current-code"
        )
    if not current_code and not os.path.isdir(saved.folder):
        raise ConfigurationError(
            f"{name} was launched in {saved.folder}, which no longer exists: create that folder, or choose "
            "--current-code"
        )
    is_elsewhere = bool(saved.config.cluster) or remote_folders.is_remote(saved.checkpoint_dir)
    if not is_elsewhere and not os.path.isdir(saved.checkpoint_dir):
        raise ConfigurationError(
            f"there is no folder {saved.checkpoint_dir} for the checkpoints of {name}. If it is on another disk, mount "
            "that first. If the job ended before its training began, launch it again"
        )


def start(saved: SavedLaunch, *, current_code: bool) -> Any:
    """Launches a job again, in the way in which it was launched.

    Returns:
        As `notebook_launcher`.

    Raises:
        NotebookAccelError: As `notebook_launcher`.
    """
    config = replace(saved.config, checkpoint_resume=True)
    if not config.cluster:
        config = replace(config, checkpoint_dir=saved.checkpoint_dir)
    prepared = replace(launcher.prepare(config), rules=rules.unpack(saved.rules))
    if not current_code:
        packed = _stored_call(saved)
        return prepared.start(packed, saved.name, saved.mode, replace(saved, config=config))
    function = pickling.find(saved.function)
    packed = payload.pack(WithArguments(function, saved.arguments), (), {})
    again = stored_code.save(config, packed, function, saved.name, saved.mode, lambda: saved.arguments)
    return prepared.start(packed, saved.name, saved.mode, replace(again, rules=saved.rules))


def _stored_call(saved: SavedLaunch) -> Payload:
    packed = payload.from_parts([memoryview(part) for part in saved.parts])
    try:
        cells = payload.sources(packed)
    except Exception as error:
        packed.close()
        raise JobLostError(f"its stored function is damaged ({type(error).__name__}: {error})") from error
    # For tracebacks. The names of an earlier kernel's cells could be those of other cells in this one.
    earlier = {filename: cell for filename, cell in cells.items() if cell_names.name_of(filename) == filename}
    stack_frames.cache_cell_sources({filename: text for filename, (_, text) in earlier.items()})
    cell_names.add({filename: f"{name} of an earlier kernel" for filename, (name, _) in earlier.items()})
    return packed
