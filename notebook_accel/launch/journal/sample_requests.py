"""Requests samples of the stacks of a job's ranks from the process that runs it, through files in the job's folder."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Callable
from dataclasses import asdict, replace

from notebook_accel.events import Sampled
from notebook_accel.launch.job.flamegraphs.samples import SampleRequest, SamplesByRank
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.journal.lines import decode, encode
from notebook_accel.launch.journal.private_files import open_private
from notebook_accel.launch.journal.records import Record
from notebook_accel.launch.wire import stack_frames

_INTERVAL = 0.1
"""Seconds between two checks for the reply."""
_TIMEOUT = 30.0
"""Seconds after the end of the sampling after which the requester gives up."""


class SampleRequestHandler:
    """Answers requests; used in the process that runs the job."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._handled = 0
        """How many bytes of the requests have been read."""

    def poll(self, record: Record) -> None:
        """Requests samples from the ranks for each new request, whose reply is written once they have answered."""
        with contextlib.suppress(OSError):  # there is no request yet
            if record.sample_requests.stat().st_size > self._handled:
                self._read(record)

    def _read(self, record: Record) -> None:
        with open(record.sample_requests, "rb") as file:
            file.seek(self._handled)
            for line in file:
                if not line.endswith(b"\n"):
                    return  # it is being written
                self._handled += len(line)
                with contextlib.suppress(ValueError, TypeError):  # written by another version
                    self._answer(record, SampleRequest(**json.loads(line)), self._handled)

    def _answer(self, record: Record, request: SampleRequest, number: int) -> None:
        self._job.runner.request_samples(request, lambda samples: _write(record, number, samples))


def sample_requester(job: Job, record: Record) -> Callable[[SampleRequest, Callable[[SamplesByRank], object]], object]:
    """The `Runner.request_samples` of a job that runs in another process."""

    def request_samples(request: SampleRequest, then: Callable[[SamplesByRank], object]) -> None:
        try:
            with open(record.sample_requests, "ab", opener=open_private) as file:
                file.write(json.dumps(asdict(request)).encode() + b"\n")
                file.flush()
                number = file.tell()
        except OSError:  # the job's folder is gone
            then({})
            return
        wait = (job, record, number, request.seconds + _TIMEOUT, then)
        threading.Thread(target=_wait, args=wait, name="request samples", daemon=True).start()

    return request_samples


def _wait(job: Job, record: Record, number: int, seconds: float, then: Callable[[SamplesByRank], object]) -> None:
    pause = threading.Event()
    reply = None
    for _ in range(int(seconds / _INTERVAL)):
        ended = job.outcome is not None  # read before the reply, which is written before the end
        reply = _read(record, number)
        if reply is not None or ended:
            break
        pause.wait(_INTERVAL)
    then(reply or {})


def _write(record: Record, number: int, samples: SamplesByRank) -> None:
    """Writes the reply, with the names that the user has for files: `In[3]`."""
    new = record.samples(number).with_suffix(".new")
    with contextlib.suppress(OSError):  # without a reply the requester runs into its timeout
        with open(new, "wb", opener=open_private) as file:
            file.writelines(
                encode(rank, replace(found, frames=stack_frames.with_sources(found.frames)))
                for rank, found in samples.items()
            )
        os.replace(new, record.samples(number))


def _read(record: Record, number: int) -> SamplesByRank | None:
    """The reply, which is removed, if there is one."""
    try:
        replies = list(map(decode, record.samples(number).read_bytes().splitlines()))
        record.samples(number).unlink()
    except (OSError, ValueError):
        return None
    return {rank: event for rank, event in filter(None, replies) if rank is not None and isinstance(event, Sampled)}
