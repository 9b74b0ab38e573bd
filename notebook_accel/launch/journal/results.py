"""Stores the results and errors of a detached job's ranks as pickles, which only the requesting process unpickles."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from notebook_accel.errors import JobLostError, LaunchError, StreamError
from notebook_accel.events import AttemptStarted, Event, Failed, Returned, from_wire, to_wire
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.rank_state import RankState
from notebook_accel.launch.journal.private_files import read_pickles
from notebook_accel.launch.journal.records import VARIABLE, Record
from notebook_accel.launch.wire.stream import Decoder, encode


class Results:
    """Writes the result of each rank as soon as it arrives."""

    def __init__(self, path: Path, job: Job) -> None:
        self._path = path
        self._error: OSError | None = None
        job.listen(self._on_event)

    def _on_event(self, rank: int | None, event: Event) -> None:
        try:
            if isinstance(event, AttemptStarted):
                os.close(os.open(self._path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW, 0o600))
            elif isinstance(event, (Returned, Failed)):
                self._add(rank, event)
        except OSError as error:
            self._error = error

    def collect(self, ranks: Sequence[RankState]) -> tuple[None, Exception | None]:
        """Frees the values, which are on disk; returns an error if they could not be written."""
        for state in ranks:
            state.returned = Returned()
        if self._error is None:
            return None, None
        return None, LaunchError(
            f"all ranks returned, but their values could not be stored in {self._path.parent}: {self._error}. Before "
            f"the next launch, free space there, or set {VARIABLE} to a folder on another disk"
        )

    def _add(self, rank: int | None, event: Event) -> None:
        header, blobs = to_wire(event)
        with open(self._path, "ab") as file:
            file.write(encode({"rank": rank, **header}, blobs))
            for blob in blobs:
                file.write(blob)


def load(record: Record) -> dict[int, Event]:
    """The event with the result of each rank, still pickled; empty if the job was not detached.

    Raises:
        JobLostError: Another user may have written it, or it is damaged.
    """
    try:
        data = read_pickles(record.results, "its results")
    except FileNotFoundError:
        return {}
    decoder = Decoder()
    try:
        found: dict[int, Any] = {header.pop("rank"): from_wire(header, blobs) for header, blobs in decoder.feed(data)}
    except (StreamError, KeyError) as error:
        raise JobLostError(f"its results are damaged: {error}") from error
    return found
