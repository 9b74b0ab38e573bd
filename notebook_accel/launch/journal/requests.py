"""Requests to the ranks of a job that another process runs, through files in the job's folder."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from notebook_accel.errors import StreamError
from notebook_accel.events import Event, Sampled, Stacks, from_wire, is_sound, to_wire
from notebook_accel.launch.job.requests import JobHandle, RankRequest, Replies, RequestRanks, no_replies
from notebook_accel.launch.journal.records import Record, open_private
from notebook_accel.launch.system import own_process
from notebook_accel.launch.wire import stack_frames, stream

_INTERVAL = 0.05
"""Seconds between two checks for the replies."""
_TIMEOUT = 30.0
"""Seconds after the time that a reply may take after which the requester gives up."""


class RequestHandler:
    """Answers requests; used in the process that runs the job."""

    def __init__(self, job: JobHandle) -> None:
        self._job = job
        self._handled = 0
        """How many bytes of the requests have been read."""

    def poll(self, record: Record) -> None:
        """Passes new requests on to the ranks; the replies are written once they have answered."""
        if self._job.runner.request_ranks is no_replies:
            return  # the ranks have not started yet
        with contextlib.suppress(OSError):  # there is no request yet
            if record.rank_requests.stat().st_size > self._handled:
                self._read(record)

    def _read(self, record: Record) -> None:
        with open(record.rank_requests, "rb") as file:
            file.seek(self._handled)
            for line in file:
                if not line.endswith(b"\n"):
                    return  # it is being written
                self._handled += len(line)
                with contextlib.suppress(ValueError, TypeError, KeyError, StreamError):  # written by another version
                    self._answer(record, _decode(line), self._handled)

    def _answer(self, record: Record, request: RankRequest, number: int) -> None:
        self._job.runner.request_ranks(request, lambda replies: _write(record, number, replies))


def rank_requester(job: JobHandle, record: Record) -> RequestRanks:
    """The `Runner.request_ranks` of a job that runs in another process."""

    def request_ranks(request: RankRequest, then: Callable[[Replies], object]) -> None:
        if job.outcome is not None:
            then({})
            return
        try:
            with open(record.rank_requests, "ab", opener=open_private) as file:
                file.write(_encode(request))
                file.flush()
                number = file.tell()
        except OSError:  # the job's folder is gone
            then({})
            return
        wait = partial(_wait, job, record, number, request.seconds + _TIMEOUT, then)
        own_process.start_thread(wait, "notebook-accel-request")

    return request_ranks


def _encode(request: RankRequest) -> bytes:
    header, _ = to_wire(request.event)
    return json.dumps({"event": header, "seconds": request.seconds, "member": request.member}).encode() + b"\n"


def _decode(line: bytes) -> RankRequest:
    found = json.loads(line)
    return RankRequest(from_wire(found["event"]), found["seconds"], found["member"])


def _wait(job: JobHandle, record: Record, number: int, seconds: float, then: Callable[[Replies], object]) -> None:
    pause = threading.Event()
    replies = None
    for _ in range(int(seconds / _INTERVAL)):
        ended = job.outcome is not None  # read before the replies, which are written before the end
        replies = _read(record, number)
        if replies is not None or ended:
            break
        pause.wait(_INTERVAL)
    then(replies or {})


def _write(record: Record, number: int, replies: Replies) -> None:
    """Writes the replies as they come over a socket, with the names that the user has for files: `In[3]`."""
    new = record.replies(number).with_suffix(".new")
    with contextlib.suppress(OSError):  # without replies the requester runs into its timeout
        with open(new, "wb", opener=open_private) as file:
            for rank, event in replies.items():
                file.writelines(_frame(rank, event))
        os.replace(new, record.replies(number))


def _frame(rank: int, event: Event) -> Iterable[bytes | bytearray | memoryview]:
    if isinstance(event, Sampled):
        event = replace(event, frames=stack_frames.with_sources(event.frames))
    elif isinstance(event, Stacks):
        threads = [replace(each, frames=stack_frames.with_sources(each.frames)) for each in event.threads]
        event = replace(event, threads=threads)
    header, blobs = to_wire(event)
    return stream.encode({"rank": rank, **header}, blobs), *blobs


def _read(record: Record, number: int) -> Replies | None:
    """The replies, whose file is removed, if there are any."""
    found = {}
    try:
        for header, blobs in stream.Decoder().feed(record.replies(number).read_bytes()):
            rank, event = header.pop("rank"), from_wire(header, blobs)
            if type(rank) is int and is_sound(event):
                found[rank] = event
        record.replies(number).unlink()
    except (OSError, KeyError, StreamError):
        return None
    return found
