"""What ranks have written and displayed as events again, from the log of a job that another process runs."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from notebook_accel.events import Cleared, Event, Lines, Notice, Shown
from notebook_accel.launch.job.job_state import JobState
from notebook_accel.launch.job.output_log import ATTEMPT, CLEARED, NOTICE, SHOWN, line_stream, parts_of

MOST_BYTES = 2 * 2**20
"""The most of the log that is read at once; what is before that is left out."""
_ATTEMPT = re.compile(rb"^0 %s 0 \d+$" % ATTEMPT, re.MULTILINE)
_Entry = tuple[int, bytes, int, Any]
"""The rank, the code, the milliseconds, and the content of an entry of the log."""


class OutputTail:
    """Reads the log of a job while it grows, first its last entries. The job gets the lines of its last attempt."""

    def __init__(self, job: JobState) -> None:
        self._job = job
        self._log = job.output_log
        self._position: int | None = None
        """Where to continue; `None` before the first time."""
        self._attempt = 0
        """The attempt that the next event is of."""
        self.has_left_out = False
        """Whether `read` has passed over entries. The reader resets it."""

    def end(self) -> int:
        """The position of the end of the log."""
        return self._log.extent()[1]

    def read(self, end: int) -> Iterator[tuple[int, Event]]:
        """Yields what was added since the last call, with global ranks.

        The first time, what ranks have displayed is as they have left it: without what they cleared, and with the last
        content of what they updated.

        Args:
            end: The position to read to. The job must have begun the attempts of what is before it.

        Raises:
            OSError: The log can't be read.
        """
        is_first = self._position is None
        start = max(self._log.extent()[0], self._position or 0)
        if is_first:
            self._position, self._attempt = start, self._job.attempt
        if start >= end:
            return
        last = max(start, end - MOST_BYTES)
        data = self._log.read(last, end)
        if last > start:
            begun = data.find(b"\n") + 1
            data, last = data[begun:], last + begun
            self.has_left_out = True
        data = data[: data.rfind(b"\n") + 1]
        self._position = last + len(data)
        if is_first and _ATTEMPT.search(data):
            self._attempt = -1  # what is before the beginning of an attempt is of an earlier one
        entries = filter(None, map(_entry, data.split(b"\n")[:-1]))
        yield from self._events(_settled(entries) if is_first else entries)

    def _events(self, entries: Iterable[_Entry]) -> Iterator[tuple[int, Event]]:
        job, first = self._job, self._job.launched.first
        for (rank, code), group in groupby(entries, lambda entry: entry[:2]):
            stream = line_stream(code)
            if not first <= rank < first + max(job.first_size, len(job.ranks)) and code not in (ATTEMPT, NOTICE):
                continue  # damaged
            if stream is not None:
                lines = Lines(stream, [text for _, _, _, text in group])
                if self._attempt == job.attempt and rank - first < len(job.ranks):
                    job.apply(rank - first, lines)
                yield rank, lines
                continue
            for _, _, _, content in group:
                if code == ATTEMPT:
                    self._attempt = content
                elif code == NOTICE:
                    yield rank, Notice(content)
                elif code == CLEARED:
                    yield rank, Cleared(wait=bool(content))
                else:
                    yield rank, self._shown(content)

    def _shown(self, fields: dict[str, Any]) -> Shown:
        """A rich output; if its content is no longer there, its text."""
        at, size, content = fields["at"], fields["size"], b""
        if size:
            with contextlib.suppress(OSError):
                content = self._log.contents.read(at, at + size)
            if len(content) != size:
                content = json.dumps({"data": {"text/plain": fields["text"]}, "metadata": {}}).encode()
        bundle = [content] if content else []
        return Shown(fields["display_id"], fields["update"], fields["alone"], bundle=bundle)


def _entry(stored: bytes) -> _Entry | None:
    """An entry of the log; `None` if it is damaged, or of a later version of this package."""
    parts = parts_of(stored)
    if parts is None or line_stream(parts[1]) is not None:
        return parts
    rank, code, at, text = parts
    try:
        if code == SHOWN:
            fields = json.loads(text)
            is_whole = all(type(fields[name]) is kind for name, kind in _FIELDS.items())
            return (rank, code, at, fields) if is_whole and isinstance(fields["display_id"], str | None) else None
        if code == NOTICE:
            return rank, code, at, str(json.loads(text))
        if code == ATTEMPT:
            return rank, code, at, int(text)
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return parts if code == CLEARED else None


_FIELDS = {"at": int, "size": int, "text": str, "update": bool, "alone": bool, "is_own": bool}
"""The fields of an entry of a rich output, and their types, besides `display_id`."""


def _settled(entries: Iterable[_Entry]) -> Iterable[_Entry]:
    """The entries, of which what ranks have displayed is as they have left it."""
    kept: dict[int, _Entry] = {}
    shown: dict[int, dict[int, str | None]] = {}
    """The numbers and the display IDs of what each rank shows."""
    clearing: dict[int, _Entry] = {}
    """The ranks that clear what they show when they show something else."""
    for number, entry in enumerate(entries):
        rank, code, at, content = entry
        own = shown.setdefault(rank, {})
        if code == CLEARED and content:
            clearing[rank] = entry
        elif code == CLEARED or (code == SHOWN and content["size"] and not content["update"] and rank in clearing):
            clearing.pop(rank, None)
            for each in own:
                del kept[each]
            own.clear()
        if code == CLEARED:
            continue
        if code == SHOWN and content["size"]:
            name = content["display_id"]
            before = [each for each, its_name in own.items() if its_name == name] if content["update"] else []
            for each in before:
                new = {key: content[key] for key in ("at", "size", "text")}
                kept[each] = rank, code, at, {**kept[each][3], **new}
            if before:
                continue
            if content["is_own"]:  # an update of what was shown before the first entry is all that is left of it
                own[number] = name
                entry = rank, code, at, {**content, "update": False}
        kept[number] = entry
    return [*kept.values(), *clearing.values()]
