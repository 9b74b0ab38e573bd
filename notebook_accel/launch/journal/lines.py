"""The lines of a journal: a head, then one event each."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from notebook_accel.errors import JobLostError, StreamError
from notebook_accel.events import Event, from_wire, to_wire
from notebook_accel.launch.journal.owner import Owner

FORMAT = 2
"""Of the whole file; a change that older readers would misread gets the next number."""

_encode = json.JSONEncoder(separators=(",", ":")).encode  # made once: it is most of the work


@dataclass(frozen=True, kw_only=True)
class Head:
    """The first line."""

    owner: Owner
    """The process that writes it."""
    origin: str = ""
    """What the job was launched from: a notebook."""
    detached: bool = False
    """Whether the owner runs nothing but this job, whatever becomes of the notebook."""
    generation: int = 0
    """How often the file has been written anew, to be short."""
    kept: int = 0
    """How many of the lines below stand for all that was in the file before."""

    def line(self) -> bytes:
        return _line({"format": FORMAT, **asdict(self)})

    @classmethod
    def parse(cls, line: bytes) -> Head:
        """Reads it.

        Raises:
            JobLostError: It was written by another version of this package, or is not such a line.
        """
        try:
            fields = json.loads(line)
            found = fields.pop("format")
            if found == FORMAT:
                return cls(**{**fields, "owner": Owner(**fields["owner"])})
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise JobLostError("its journal does not begin as a journal does") from error
        raise JobLostError(f"its journal was written by another version of notebook_accel: {found!r}, not {FORMAT}")


def encode(rank: int | None, event: Event) -> bytes:
    """The line of an event; what is binary stays out of it."""
    header, _ = to_wire(event)
    return _line(header if rank is None else {"rank": rank, **header})


def decode(line: bytes) -> tuple[int | None, Event] | None:
    """The event of a line, and its rank; `None` if the line is torn, or says what this version does not know."""
    try:
        header = json.loads(line)
        rank = header.pop("rank", None)
        event = from_wire(header)
    except (ValueError, TypeError, AttributeError, StreamError):
        return None
    return (rank, event) if rank is None or type(rank) is int else None


def _line(fields: dict[str, Any]) -> bytes:
    return _encode(fields).encode() + b"\n"
