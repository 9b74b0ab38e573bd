"""A line of a job's log, and how it is stored: `RANK STREAM MILLISECONDS TEXT`, in UTF-8."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from notebook_accel.launch.wire.terminal_codes import plain

_STREAMS = {"stdout": b"o", "stderr": b"e"}
_NAMES = {code: name for name, code in _STREAMS.items()}
WARNING, ERROR = 1, 2
"""The levels of lines; 0 if a line has none of these."""
_LEVEL = re.compile(
    r"\b(?:(?P<error>ERROR|CRITICAL|FATAL)|WARN(?:ING)?)\b|Warning: "
    r"|^(?P<raised>[\w.]*(?:Error|Exception)\b|Traceback \()"
)
_LEVEL_WITHIN = 160
"""The characters at the beginning of a line that may name its level."""


@dataclass(frozen=True)
class LogLine:
    """One line that a rank has written."""

    position: int
    """Where it begins in the log, in bytes."""
    rank: int
    """The global rank."""
    stream: str
    """`stdout` or `stderr`."""
    at: int
    """Milliseconds since the job began."""
    text: str
    """As it was written, with codes for terminals."""

    @property
    def level(self) -> int:
        """Its level, as far as it names one."""
        found = _LEVEL.search(plain(self.text[:_LEVEL_WITHIN]))
        if found is None:
            return 0
        return ERROR if found["error"] or found["raised"] else WARNING


def encode(rank: int, stream: str, at: int, texts: Sequence[str]) -> bytes:
    """The lines as they are stored, each with its newline."""
    prefix = b"%d %s %d " % (rank, _STREAMS[stream], max(0, at))
    return b"".join([prefix + text.encode("utf-8", "replace").replace(b"\n", b" ") + b"\n" for text in texts])


def decode(position: int, stored: bytes) -> LogLine | None:
    """The line that is stored; `None` if it is damaged."""
    parts = stored.split(b" ", 3)
    if len(parts) != 4 or parts[1] not in _NAMES or not parts[0].isdigit() or not parts[2].isdigit():
        return None
    text = parts[3].decode("utf-8", "replace")
    return LogLine(position, int(parts[0]), _NAMES[parts[1]], int(parts[2]), text)
