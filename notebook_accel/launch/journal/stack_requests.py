"""Requests the stacks of a job's ranks from the process that runs it, through files in the job's folder."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from notebook_accel.events import Stacks, StacksRequested, ThreadStack
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.journal.lines import decode, encode
from notebook_accel.launch.journal.private_files import open_private
from notebook_accel.launch.journal.records import Record
from notebook_accel.launch.system import own_process
from notebook_accel.launch.wire import stack_frames

if TYPE_CHECKING:
    from notebook_accel.launch.job.stacks import StacksByRank

_INTERVAL = 0.05
"""Seconds between two checks for the reply."""
_TIMEOUT = 30.0
"""Seconds after which the requester gives up."""


class StackRequestHandler:
    """Answers requests; used in the process that runs the job."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._handled = 0

    def poll(self, record: Record) -> None:
        """Requests stacks from the ranks if there is a new request, and writes the reply once they have answered."""
        number = _request_count(record)
        if number > self._handled:
            self._handled = number
            self._job.runner.request_stacks(lambda stacks_by_rank: _write(record, number, stacks_by_rank))


def stack_requester(job: Job, record: Record) -> Callable[[Callable[[StacksByRank], object]], object]:
    """The `Runner.request_stacks` of a job that runs in another process."""

    def request_stacks(then: Callable[[StacksByRank], object]) -> None:
        if job.outcome is not None:
            then({})
            return
        try:
            with open(record.stack_requests, "ab", opener=open_private) as file:
                file.write(b"?")
                number = file.tell()
        except OSError:  # the job's folder is gone
            then({})
            return
        own_process.start_thread(partial(_wait, job, record, number, then), "notebook-accel-stacks")

    return request_stacks


def _wait(job: Job, record: Record, number: int, then: Callable[[StacksByRank], object]) -> None:
    pause = threading.Event()
    for _ in range(int(_TIMEOUT / _INTERVAL)):
        reply = _read(record, number)
        if reply is not None or job.outcome is not None:
            break
        pause.wait(_INTERVAL)
    then(reply or {})


def _request_count(record: Record) -> int:
    try:
        return record.stack_requests.stat().st_size
    except OSError:
        return 0


def _write(record: Record, number: int, stacks_by_rank: StacksByRank) -> None:
    """Writes the number of the request, then the stacks, with the names that the user has for files: `In[3]`."""
    lines = [encode(None, StacksRequested(number))]
    lines += [
        encode(rank, Stacks(number, [_displayable(thread) for thread in threads]))
        for rank, threads in stacks_by_rank.items()
    ]
    new = record.stacks.with_suffix(".new")
    with contextlib.suppress(OSError):  # without a reply the requester runs into its timeout
        with open(new, "wb", opener=open_private) as file:
            file.writelines(lines)
        os.replace(new, record.stacks)


def _read(record: Record, number: int) -> StacksByRank | None:
    """The reply to this request or a later one, if there is one."""
    try:
        request, *replies = map(decode, record.stacks.read_bytes().splitlines())
    except (OSError, ValueError):
        return None
    if request is None or not isinstance(request[1], StacksRequested) or request[1].number < number:
        return None
    return {
        rank: event.threads for rank, event in filter(None, replies) if rank is not None and isinstance(event, Stacks)
    }


def _displayable(thread: ThreadStack) -> ThreadStack:
    return replace(thread, frames=stack_frames.with_sources(thread.frames))
