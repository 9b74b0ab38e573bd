"""The lines of a journal: a head, then one event each."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from notebook_accel.errors import JobLostError, StreamError
from notebook_accel.events import AttemptStarted, Event, JobEnded, JobStarted, Shown, from_wire, is_sound, to_wire
from notebook_accel.launch.job.job_state import Status
from notebook_accel.owner import Owner

FORMAT = 2
"""The version of the file format; a change that older readers would misread increments it."""

_MOST_RANKS = 2**16
"""More than a job has."""
_LATEST = 2**37
"""A time in seconds since the epoch that no job reaches, and that the C library has a date for."""
_encode = json.JSONEncoder(separators=(",", ":")).encode  # made once: creating it takes most of `dumps`


@dataclass(frozen=True, kw_only=True)
class Head:
    """The first line."""

    owner: Owner
    """The process that runs the job and writes the file."""
    origin: str = ""
    """The notebook that the job was launched from."""
    detached: bool = False
    """Whether the owner runs only this job, and keeps running when the notebook ends."""
    checkpoint_dir: str = ""
    """The absolute path of the folder that the job saves checkpoints to, if it does."""
    generation: int = 0
    """How often the file was compacted."""
    kept: int = 0
    """How many of the lines below replace what was in the file before compaction."""

    def line(self) -> bytes:
        return _line({"format": FORMAT, **asdict(self)})

    @classmethod
    def parse(cls, line: bytes) -> Head:
        """Parses the first line of a journal.

        Raises:
            JobLostError: It was written by another version of this package, or is not such a line.
        """
        try:
            fields = json.loads(line)
            found = fields.pop("format")
            if found == FORMAT:
                return cls(**{**fields, "owner": Owner(**fields["owner"])})
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise JobLostError("its journal has no valid first line") from error
        raise JobLostError(
            f"its journal was written by another version of notebook_accel, in format {found!r}; this version reads "
            f"format {FORMAT}. Install the same version in the environments of Jupyter and of its kernels"
        )


def encode(rank: int | None, event: Event) -> bytes:
    """The line of an event. Of its binary blobs, it has only those of a rich output, which are text."""
    header, blobs = to_wire(event)
    if isinstance(event, Shown):
        header["bundle"] = b"".join(map(bytes, blobs)).decode()
    return _line(header if rank is None else {"rank": rank, **header})


def decode(line: bytes) -> tuple[int | None, Event] | None:
    """The event of a line, and its rank; `None` if the line is torn, damaged, or of a later version of this package."""
    try:
        header = json.loads(line)
        rank = header.pop("rank", None)
        bundle = header.pop("bundle", "")
        event = from_wire(header, [bundle.encode()] if bundle else ())
    except (ValueError, TypeError, AttributeError, RecursionError, StreamError):
        return None
    is_line = (rank is None or type(rank) is int) and is_sound(event) and _is_possible(event)
    return (rank, event) if is_line else None


def _is_possible(event: Event) -> bool:
    """Whether the values of an event can be, apart from their types."""
    if not 0 <= getattr(event, "at", 0) < _LATEST:  # NaN isn't, either
        return False
    if isinstance(event, (JobStarted, AttemptStarted)):
        return 0 <= event.size <= _MOST_RANKS
    return not isinstance(event, JobEnded) or event.status in {status.value for status in Status}


def _line(fields: dict[str, Any]) -> bytes:
    return _encode(fields).encode() + b"\n"
