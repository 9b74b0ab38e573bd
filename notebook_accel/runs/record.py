"""A sweep on disk: which trials there are, which job runs each, and how each has ended, for `resume`.

A folder for each sweep, which only its user can read: `trials`, with one JSON object a line, and `result-3`, with what
the launch of trial 3 returned, pickled. A line is added whenever a trial begins or ends, so that a kernel may die at
any time.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from types import BuiltinFunctionType, FunctionType
from typing import Any

from notebook_accel.errors import ConfigurationError, JobLostError
from notebook_accel.launch.job.text import size
from notebook_accel.launch.journal import records
from notebook_accel.launch.journal.private_files import make_private, open_private, write_all
from notebook_accel.launch.show import console
from notebook_accel.launch.wire import payload
from notebook_accel.owner import Owner
from notebook_accel.runs.trial import Measured, State, Trial

_MOST_SWEEPS = 100
"""The most sweeps that are kept on disk."""
_MOST_BYTES = 64 * 2**20
"""A larger result of a trial is not stored."""
_ADDRESS = re.compile(r"\b0x[0-9a-f]{6,}")
_PLAIN = (bool, int, float, str, type(None))
"""What a study suggests; the parameters of other searches are those of the call."""


@dataclass
class Record:
    """The folder of one sweep."""

    path: Path
    failed: bool = field(default=False, init=False)
    """Whether it could not be written, so that nothing more is."""

    @property
    def id(self) -> str:
        return self.path.name.rpartition("-")[2]

    def add(self, **line: Any) -> None:
        """Adds a line."""
        if self.failed:
            return
        try:
            fd = open_private(self.path / "trials", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            try:
                write_all(fd, ("\n" + json.dumps(line) + "\n").encode())  # the line before may be torn
            finally:
                os.close(fd)
        except OSError as error:
            self.fail(error)

    def fail(self, error: OSError) -> None:
        """Takes no more lines, and says so."""
        self.failed = True
        console.current.notice(f"the sweep is not recorded, so resume won't find it: {error}")

    def add_begin(self, trial: Trial, *, detached: bool) -> None:
        """Records that a trial runs."""
        values = {name: each for name, each in trial.parameters.items() if isinstance(each, _PLAIN)}
        self.add(
            trial=trial.number,
            parameters=_text(trial.parameters),
            values=values,
            job=trial.job_id,
            detached=detached,
        )

    def add_end(self, trial: Trial) -> None:
        """Records how a trial has ended, and what it returned."""
        lost = trial.value_lost or self._store(trial)
        measured = {name: list(each) for name, each in trial.measured.items()}
        self.add(
            trial=trial.number,
            state=trial.state.value,
            why=trial.why,
            seconds=trial.seconds,
            measured=measured,
            returned=trial.value is not None,
            lost=lost,
        )

    def _store(self, trial: Trial) -> str:
        """Stores what a trial returned; returns why a later kernel won't have it, or an empty text."""
        if trial.value is None or self.failed:
            return ""
        path = self.path / f"result-{trial.number}"
        try:
            data = pickle.dumps(trial.value)
            if len(data) > _MOST_BYTES:
                return f"it has {size(len(data))}, and only the kernel that ran it has more than {size(_MOST_BYTES)}"
            with open(path, "wb", opener=open_private) as file:
                file.write(data)
        except Exception as error:  # pickling raises anything
            with contextlib.suppress(OSError):
                path.unlink()
            return f"it could not be stored ({type(error).__name__}: {error})"
        return ""

    def result(self, number: int) -> Any:
        """What a trial returned.

        Raises:
            JobLostError: It is not stored, or can't be unpickled here.
        """
        path = self.path / f"result-{number}"
        try:
            return pickle.loads(records.read_pickles(path, "the result"))
        except JobLostError:
            raise
        except Exception as error:
            raise JobLostError(f"{type(error).__name__}: {error}") from error

    def lines(self) -> Iterator[dict[str, Any]]:
        """The lines, without those that a dying kernel has left half written.

        Raises:
            JobLostError: The file can't be read.
        """
        try:
            text = (self.path / "trials").read_text()
        except (OSError, ValueError) as error:
            raise JobLostError(f"the sweep can't be read: {error}") from error
        for line in text.splitlines():
            with contextlib.suppress(ValueError):
                if line:
                    yield json.loads(line)


@dataclass
class Past:
    """What an earlier kernel has left of a sweep."""

    record: Record
    name: str
    origin: str
    total: int
    owner: Owner | None = None
    """The process that runs it; `None` if it is over."""
    parameters: dict[int, str] = field(default_factory=dict)
    values: dict[int, dict[str, Any]] = field(default_factory=dict)
    """By trial: those of its parameters that are plain."""
    jobs: dict[int, str] = field(default_factory=dict)
    """By trial: the ID of its last job."""
    detached: set[int] = field(default_factory=set)
    """The trials whose last job doesn't end with its kernel."""
    ends: dict[int, dict[str, Any]] = field(default_factory=dict)

    @property
    def is_running(self) -> bool:
        return self.owner is not None and self.owner.is_local and self.owner.is_alive()

    @property
    def is_done(self) -> bool:
        """Whether no trial is left that a later kernel would run."""
        ended = [number for number, end in self.ends.items() if State(end["state"]).counts]
        return len(ended) == self.total

    def fits(self, name: str, total: int, parameters: Sequence[dict[str, Any]] | None) -> bool:
        """Whether these are its trials; parameters are unknown if a study suggests them."""
        if (self.name, self.total) != (name, total):
            return False
        return parameters is None or all(text == _text(parameters[n]) for n, text in self.parameters.items())

    def restore(self, trial: Trial) -> bool:
        """Makes a trial what it was, if it has ended so that it need not run again; returns whether it has."""
        number = trial.number
        trial.job_id = self.jobs.get(number, "")
        trial.parameters = trial.parameters or self.values.get(number, {})
        end = self.ends.get(number)
        if end is None or not State(end["state"]).counts:
            return False
        trial.state, trial.why, trial.seconds = State(end["state"]), end["why"], end["seconds"]
        trial.measured = {name: Measured(*values) for name, values in end["measured"].items()}
        trial.value_lost = end["lost"]
        if end["returned"] and not trial.value_lost:
            try:
                trial.value = self.record.result(number)
            except JobLostError as error:
                trial.value_lost = str(error)
        return True


def create(name: str, origin: str, total: int) -> Record:
    """Creates the folder of a sweep; the record of one that can't be created takes no lines."""
    parent = _folder()
    record = Record(parent / f"{int(time.time() * 1000):012x}-{os.urandom(4).hex()}")
    try:
        make_private(parent)
        record.path.mkdir(mode=0o700)
    except OSError as error:
        record.fail(error)
        return record
    for old in sorted(parent.iterdir())[:-_MOST_SWEEPS]:
        shutil.rmtree(old, ignore_errors=True)
    record.add(sweep=name, origin=origin, total=total)
    return record


def find(
    resume: bool | str, name: str, origin: str, total: int, parameters: Sequence[dict[str, Any]] | None
) -> Past | None:
    """The sweep to resume: that with this ID, or, for `True`, the last of this notebook with these trials, unless done.

    Raises:
        ConfigurationError: There is none with this ID, it runs, or its trials are others; or no process but this one
            can recognize the parameters.
    """
    for parameter, value in ((key, value) for each in parameters or () for key, value in each.items()):
        if _ADDRESS.search(_text({parameter: value})):
            raise ConfigurationError(
                f"resume can't tell whether an earlier sweep had {parameter}={value!r:.80}: its text contains an "
                "address, which differs in each kernel. Vary a name or a number, and look up the object in the "
                "launched function; a function or a class with a name works too"
            )
    for path in sorted(_all(), reverse=True):
        if isinstance(resume, str) and not path.name.rpartition("-")[2].startswith(resume):
            continue
        try:
            past = _read(Record(path))
        except (JobLostError, KeyError, ValueError):  # written by another version, or just removed
            continue
        fits = past.fits(name, total, parameters)
        if isinstance(resume, str):
            if not fits:
                raise ConfigurationError(
                    f"the sweep {past.record.id} ran {past.name}() with other parameters, or with {past.total} trials: "
                    "pass the function and the parameters that it had, or leave resume out"
                )
        elif not fits or past.origin != origin or past.is_done:
            continue
        if past.is_running and past.owner is not None:
            raise ConfigurationError(
                f"the sweep {past.record.id} still runs in process {past.owner.pid}: wait for its end, or stop it there"
            )
        return past
    if isinstance(resume, str):
        raise ConfigurationError(f"no sweep is recorded whose ID begins with {resume!r}, according to {_folder()}")
    return None


def _read(record: Record) -> Past:
    lines = record.lines()
    head = next(lines, {})
    past = Past(record, head["sweep"], head["origin"], head["total"])
    for line in lines:
        if "owner" in line:
            past.owner = Owner.parse(line["owner"]) if line["owner"] else None
        elif "job" in line:
            number = line["trial"]
            past.parameters[number], past.values[number] = line["parameters"], line["values"]
            past.jobs[number] = line["job"]
            (past.detached.add if line["detached"] else past.detached.discard)(number)
            past.ends.pop(number, None)
        else:
            past.ends[line["trial"]] = line
    return past


def _folder() -> Path:
    return records.folder().parent / "sweeps"


def _all() -> list[Path]:
    try:
        return list(_folder().iterdir())
    except OSError:
        return []


def _text(parameters: dict[str, Any]) -> str:
    """Equal for equal parameters, and only for these, also in another process."""
    return repr([(name, _told(value)) for name, value in sorted(parameters.items())])


def _told(value: Any) -> Any:
    """What tells a parameter from others.

    Functions and classes go by their names. Other objects go by how they are pickled: their text may leave out what
    they differ in, as that of a large array does.
    """
    text = _name(value) or repr(value)
    if _name(value) or isinstance(value, _PLAIN) or _ADDRESS.search(text):
        return text
    try:
        return f"{type(value).__qualname__} {blake2b(payload.named(value), digest_size=16).hexdigest()}"
    except Exception:  # pickling raises anything
        return text


def _name(value: Any) -> str:
    """Where a function or a class is defined; empty for everything else, and for a function without a name."""
    if not isinstance(value, (type, FunctionType, BuiltinFunctionType)) or "<" in value.__qualname__:
        return ""
    return f"{value.__module__}.{value.__qualname__}"
