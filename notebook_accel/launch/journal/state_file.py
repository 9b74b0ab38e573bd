"""The state of a job on disk: a head, and the fewest events that fold to it, one JSON object a line.

There are two such files, which are overwritten in turn whenever the state has changed. One of them is whole at any
moment, however the process ends; a checksum in the head shows that. Replacing a file would be atomic too, but some file
systems then write it to the disk at once, and the driver would wait for that several times a second.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from notebook_accel.errors import JobLostError, StreamError
from notebook_accel.events import (
    AttemptStarted,
    DevicesAwaited,
    Event,
    JobEnded,
    JobStarted,
    Phase,
    RuleChanged,
    StepTimes,
    from_wire,
    is_sound,
    to_wire,
)
from notebook_accel.events.rules import ACTIONS
from notebook_accel.launch.job.job_state import Status
from notebook_accel.launch.journal.private_files import open_private, write_all
from notebook_accel.owner import Owner

NAMES = ("state-0", "state-1")
"""The two files, in the order in which they are written first."""
FORMAT = 3
"""The version of the file format; a change that older readers would misread increments it."""

_MOST_RANKS = 2**16
"""More than a job has."""
_LATEST = 2**37
"""A time in seconds since the epoch that no job reaches, and that the C library has a date for."""
_VERSION_BYTES = 60
"""Bytes at the beginning of a head that differ from one state to the next."""
_TRIES = 3
"""How often the files are read if none is whole: each may have been overwritten just when it was read."""
_INVALID = "its journal has no valid first line"
_PAUSED = f'"{Phase.PAUSED.value}"'.encode()
_AWAITED = f'"{DevicesAwaited.kind}"'.encode()
_ATTEMPT = f'"{AttemptStarted.kind}"'.encode()
_encode = json.JSONEncoder(separators=(",", ":")).encode  # made once: creating it takes most of `dumps`
Entry = tuple[int | None, Event]
"""An event, and its rank; `None` if it is of the whole job."""


@dataclass(frozen=True, kw_only=True)
class Head:
    """The first line."""

    owner: Owner
    """The process that runs the job and writes the file."""
    origin: str = ""
    """The notebook that the job was launched from; empty if a script or a command launched it."""
    detached: bool = False
    """Whether the owner runs only this job, and keeps running when the notebook ends."""
    is_command: bool = False
    """Whether the owner is a command that runs a script, rather than a kernel."""
    checkpoint_dir: str = ""
    """The absolute path of the folder that the job saves checkpoints to, if it does."""
    number: int = 0
    """How many states were written before."""
    size: int = 0
    """The bytes of the lines below."""
    checksum: int = 0
    """Of these lines."""

    @property
    def notebook(self) -> str:
        """The name of the notebook that the job was launched from; empty if it isn't known."""
        return Path(self.origin).name if self.origin.endswith(".ipynb") else ""

    @property
    def lost(self) -> Status:
        """The status of the job if its owner ends without recording how the job ended."""
        if self.is_command:
            return Status.LOST_WITH_COMMAND
        return Status.LOST if self.origin and not self.detached else Status.LOST_WITH_PROCESS

    def of(self, number: int, lines: bytes) -> Head:
        """The head of a state."""
        return replace(self, number=number, size=len(lines), checksum=zlib.crc32(lines))

    def line(self) -> bytes:
        return _line({"format": FORMAT, "number": self.number, "checksum": self.checksum, **asdict(self)})

    @classmethod
    def parse(cls, line: bytes) -> Head:
        """Parses the first line.

        Raises:
            JobLostError: It was written by another version of this package, or is not such a line.
        """
        try:
            fields = json.loads(line)
            found = fields.pop("format")
            if found == FORMAT:
                head = cls(**{**fields, "owner": Owner(**fields["owner"])})
                if all(type(each) is int and each >= 0 for each in (head.number, head.size, head.checksum)):
                    return head
                raise ValueError("no numbers")
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise JobLostError(_INVALID) from error
        raise JobLostError(
            f"its journal was written by another version of notebook_accel, in format {found!r}; this version reads "
            f"format {FORMAT}. Install the same version in the environments of Jupyter and of its kernels"
        )


def encode(rank: int | None, event: Event) -> bytes:
    """The line of an event, without its binary blobs."""
    header, _ = to_wire(event)
    return _line(header if rank is None else {"rank": rank, **header})


def decode(line: bytes) -> Entry | None:
    """The event of a line, and its rank; `None` if the line is damaged, or of a later version of this package."""
    try:
        header = json.loads(line)
        rank = header.pop("rank", None)
        event = from_wire(header)
    except (ValueError, TypeError, AttributeError, RecursionError, StreamError):
        return None
    is_line = (rank is None or type(rank) is int) and is_sound(event) and _is_possible(event)
    return (rank, event) if is_line else None


def _is_possible(event: Event) -> bool:
    """Whether the values of an event can be, apart from their types: what readers compute with them has a result."""
    if not all(0 <= getattr(event, name, 0) < _LATEST for name in ("at", "since")):
        return False
    if isinstance(event, JobStarted):
        return 0 <= event.size <= _MOST_RANKS and event.world_size > 0
    if isinstance(event, AttemptStarted):
        return 0 <= event.size <= _MOST_RANKS
    if isinstance(event, StepTimes):
        return event.steps > 0 and event.local_ranks > 0
    if isinstance(event, RuleChanged):
        return event.rule.action in ACTIONS
    return not isinstance(event, JobEnded) or event.status in {status.value for status in Status}


def _line(fields: dict[str, Any]) -> bytes:
    return _encode(fields).encode() + b"\n"


@dataclass(frozen=True)
class StoredState:
    """A state as it is on disk."""

    head: Head
    lines: Sequence[bytes]
    is_last: bool = True
    """Whether it is the last one that was written; otherwise, that one is not whole yet, or damaged."""

    @classmethod
    def read(cls, folder: Path) -> StoredState:
        """Reads the last state in a job's folder that is whole.

        Raises:
            JobLostError: There is none, or it was written by another version of this package.
        """
        problem: JobLostError | None = None
        for _ in range(_TRIES):
            found: list[tuple[int, Head, bytes]] = []
            is_damaged = False
            for name in NAMES:
                try:
                    first, _, rest = (folder / name).read_bytes().partition(b"\n")
                    head = Head.parse(first)
                    found.append((head.number, head, rest[: head.size]))
                except OSError as error:
                    problem = problem or JobLostError(f"its journal can't be read: {error}")
                except JobLostError as error:
                    problem, is_damaged = error, True
            found.sort(key=lambda each: each[0], reverse=True)
            for index, (_, head, body) in enumerate(found):
                if len(body) == head.size and zlib.crc32(body) == head.checksum:
                    return cls(head, body.splitlines(), index == 0 and not is_damaged)
        raise problem if problem is not None and not found else JobLostError(_INVALID)

    def ends(self) -> tuple[JobStarted, JobEnded | None]:
        """How the job began, and how it ended if it has.

        Raises:
            JobLostError: It doesn't begin with a job.
        """
        first = decode(self.lines[0]) if self.lines else None
        last = decode(self.lines[-1]) if self.lines else None
        if first is None or not isinstance(first[1], JobStarted):
            raise JobLostError(_INVALID)
        return first[1], last[1] if last is not None and isinstance(last[1], JobEnded) else None

    @property
    def is_paused(self) -> bool:
        """Whether a rank waits until the user resumes the training."""
        return any(getattr(event, "phase", None) is Phase.PAUSED for event in self._events_with(_PAUSED))

    @property
    def awaits_devices(self) -> bool:
        """Whether the job waits for its devices."""
        found = self._events_with(_AWAITED)
        return any(isinstance(event, DevicesAwaited) and event.what for event in found)

    @property
    def devices(self) -> Collection[str]:
        """The devices of its last attempt; before the first, those that it may get."""
        attempts = [event for event in self._events_with(_ATTEMPT) if isinstance(event, AttemptStarted)]
        return (attempts[-1].devices if attempts else ()) or self.ends()[0].devices

    def _events_with(self, text: bytes) -> Iterator[Event]:
        """The events whose lines have a text; the others aren't decoded."""
        entries = (decode(line) for line in self.lines if text in line)
        return (entry[1] for entry in entries if entry is not None)


class StateWriter:
    """Writes the state of one job; events that it has written before aren't encoded again."""

    def __init__(self, folder: Path, head: Head) -> None:
        self._folder = folder
        self._head = head
        self._written = 0
        """The number of states that were written."""
        self._known: dict[int | None, list[tuple[Event, bytes]]] = {}
        """The events of the last time, by rank, and their lines."""

    def write(self, events: Iterable[Entry]) -> None:
        """Writes a state.

        Raises:
            OSError: It can't be written. The one before is still there.
        """
        before, self._known = self._known, {}
        lines = []
        for rank, group in groupby(events, lambda entry: entry[0]):
            earlier = before.get(rank, ())
            known = self._known.setdefault(rank, [])
            for _, event in group:
                found = earlier[len(known)] if len(known) < len(earlier) else None
                if found is None or (found[0] is not event and found[0] != event):
                    found = event, encode(rank, event)
                known.append(found)
                lines.append(found[1])
        body = b"".join(lines)
        state = self._head.of(self._written, body).line() + body
        path = self._folder / NAMES[self._written % len(NAMES)]
        new = self._folder / "state-new" if self._written < len(NAMES) else path  # so that no file appears empty
        fd = open_private(new, os.O_WRONLY | os.O_CREAT)
        try:
            write_all(fd, state)
            os.ftruncate(fd, len(state))
        finally:
            os.close(fd)
        if new is not path:
            os.rename(new, path)
        self._written += 1


class StateReader:
    """Reads the state of one job each time that it has changed; lines that it has read before aren't decoded again."""

    def __init__(self, folder: Path, unused: Sequence[type[Event]] = ()) -> None:
        """Reads the head.

        Args:
            folder: The job's folder.
            unused: Events that aren't needed, and so aren't decoded.

        Raises:
            JobLostError: There is no state, or it was written by another version of this package.
        """
        self._folder = folder
        kinds = b"|".join(each.kind.encode() for each in unused)
        self._unused = re.compile(rb'\{(?:"rank":\d+,)?"kind":"(?:%s)"' % kinds) if unused else None
        self._version: object = None
        self._known: dict[bytes, Entry | None] = {}
        self.head = StoredState.read(folder).head

    def read(self) -> tuple[list[Entry], list[Entry]] | None:
        """The events, and those of them that are new; `None` if nothing has changed.

        Raises:
            JobLostError: The state can't be read, or doesn't begin with a job.
        """
        version = version_of(self._folder)
        if version == self._version or (self._known and not any(version)):
            return None  # the latter: the folder was removed, so nothing more comes
        stored = StoredState.read(self._folder)
        before, self._known = self._known, {}
        entries, new = [], []
        for line in stored.lines:
            if self._unused is not None and self._unused.match(line):
                continue
            found = before[line] if line in before else decode(line)
            self._known[line] = found
            if found is not None:
                entries.append(found)
                if line not in before:
                    new.append(found)
        if not entries or not isinstance(entries[0][1], JobStarted):
            raise JobLostError(_INVALID)
        self._version = version if stored.is_last else None
        return entries, new


def version_of(folder: Path) -> tuple[bytes, ...]:
    """Equal for two moments between which no state was written: the beginnings of the heads."""
    return tuple(_beginning(folder / name) for name in NAMES)


def _beginning(path: Path) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read(_VERSION_BYTES)
    except OSError:
        return b""
