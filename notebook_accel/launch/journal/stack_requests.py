"""Asks the process that runs a job where its ranks are, by way of the job's folder, as others ask it to stop."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from notebook_accel.events import Stacks, StacksRequested, ThreadStack
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.journal.lines import decode, encode
from notebook_accel.launch.journal.records import Record
from notebook_accel.launch.wire import frames

if TYPE_CHECKING:
    from notebook_accel.launch.job.stacks import StacksByRank

_INTERVAL = 0.05
"""Seconds between two looks for the answer."""
_PATIENCE = 30.0
"""Seconds after which it is looked for no longer."""


class StackRequestHandler:
    """Stands in the process that runs the job."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._heard = 0

    def look(self, record: Record) -> None:
        """Has the ranks asked, if somebody wants it; the answer is written when they have told."""
        asked = _request_count(record)
        if asked > self._heard:
            self._heard = asked
            self._job.runner.request_stacks(lambda told: _write(record, asked, told))


def stack_requester(job: Job, record: Record) -> Callable[[Callable[[StacksByRank], object]], object]:
    """What `Job.stacks` asks, for a job that runs in another process."""

    def ask(then: Callable[[StacksByRank], object]) -> None:
        if job.outcome is not None:
            then({})
            return
        try:
            with open(record.stack_requests, "ab", opener=_private) as file:
                file.write(b"?")
                number = file.tell()
        except OSError:  # nobody can be asked any more
            then({})
            return
        threading.Thread(target=_wait, args=(job, record, number, then), name="ask for stacks", daemon=True).start()

    return ask


def _wait(job: Job, record: Record, number: int, then: Callable[[StacksByRank], object]) -> None:
    pause = threading.Event()
    for _ in range(int(_PATIENCE / _INTERVAL)):
        answer = _read(record, number)
        if answer is not None or job.outcome is not None:
            break
        pause.wait(_INTERVAL)
    then(answer or {})


def _request_count(record: Record) -> int:
    try:
        return record.stack_requests.stat().st_size
    except OSError:
        return 0


def _write(record: Record, number: int, told: StacksByRank) -> None:
    """The number of the question, then what each rank has told, with the names that the notebook has for places."""
    lines = [encode(None, StacksRequested(number))]
    lines += [
        encode(rank, Stacks(number, [_displayable(thread) for thread in threads])) for rank, threads in told.items()
    ]
    new = record.stacks.with_suffix(".new")
    with contextlib.suppress(OSError):  # whoever asks waits in vain, then
        with open(new, "wb", opener=_private) as file:
            file.writelines(lines)
        os.replace(new, record.stacks)


def _read(record: Record, number: int) -> StacksByRank | None:
    """The answer, if there is one to this question or a later one."""
    try:
        question, *answers = map(decode, record.stacks.read_bytes().splitlines())
    except (OSError, ValueError):
        return None
    if question is None or not isinstance(question[1], StacksRequested) or question[1].number < number:
        return None
    return {
        rank: event.threads for rank, event in filter(None, answers) if rank is not None and isinstance(event, Stacks)
    }


def _displayable(thread: ThreadStack) -> ThreadStack:
    return replace(thread, frames=frames.with_sources(thread.frames))


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)
