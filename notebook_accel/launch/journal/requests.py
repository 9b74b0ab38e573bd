"""Requests to a job that another process runs, and their replies: files in the job's folder.

Files work where sockets don't: between machines that share the folder, and on file systems that have no sockets.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from notebook_accel.errors import StreamError
from notebook_accel.events import Event, Remarked, Sampled, Stacks, from_wire, is_sound, to_wire
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.requests import JobHandle, RankRequest, Replies, RequestRanks, no_replies
from notebook_accel.launch.journal.private_files import open_private
from notebook_accel.launch.journal.records import Record
from notebook_accel.launch.system import own_process
from notebook_accel.launch.wire import stack_frames, stream

_INTERVAL = 0.05
"""Seconds between two checks for the replies."""
_TIMEOUT = 30.0
"""Seconds after the time that a reply may take after which the requester gives up."""


class RequestHandler:
    """Does what is requested; used in the process that runs the job, on the thread that applies its events."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._stops: set[str] = set()
        """The requests to stop that were handled. They stay, so that other processes know how many there were."""

    def poll(self, record: Record) -> None:
        """Stops the job, adds to its notes, or passes requests on to the ranks, whose replies are written later."""
        for name in record.requests():
            if name in self._stops:
                continue
            if record.is_stop_request(name):
                self._stops.add(name)
                self._job.cancel()
            else:
                with contextlib.suppress(OSError):
                    self._answer(record, name)

    def _answer(self, record: Record, name: str) -> None:
        content, request = (record.path / name).read_bytes(), None
        with contextlib.suppress(ValueError, TypeError, KeyError, StreamError):  # of another version
            request = _decode(content)
        is_remark = request is not None and isinstance(request.event, Remarked)
        if request is not None and not is_remark and self._job.runner.request_ranks is no_replies:
            return  # the ranks have not started yet
        os.unlink(record.path / name)
        if request is None:
            return
        if is_remark:
            self._job.apply(None, request.event)
        else:
            self._job.runner.request_ranks(request, lambda replies: _write(record, name, replies))


def add_remark(record: Record, text: str) -> None:
    """Adds a line to the notes of a job that another process runs. It is lost if the job ends at once.

    Raises:
        OSError: It can't be written, or the job has ended.
    """
    record.request(_encode(RankRequest(Remarked(text))))


def rank_requester(job: JobHandle, record: Record) -> RequestRanks:
    """The `Runner.request_ranks` of a job that runs in another process."""

    def request_ranks(request: RankRequest, then: Callable[[Replies], object]) -> None:
        if job.outcome is not None:
            then({})
            return
        try:
            name = record.request(_encode(request))
        except OSError:  # the job has ended
            then({})
            return
        wait = partial(_wait, job, record, name, request.seconds + _TIMEOUT, then)
        own_process.start_thread(wait, "notebook-accel-request")

    return request_ranks


def _encode(request: RankRequest) -> bytes:
    header, _ = to_wire(request.event)
    return json.dumps({"event": header, "seconds": request.seconds, "member": request.member}).encode()


def _decode(content: bytes) -> RankRequest:
    found = json.loads(content)
    return RankRequest(from_wire(found["event"]), found["seconds"], found["member"])


def _wait(job: JobHandle, record: Record, name: str, seconds: float, then: Callable[[Replies], object]) -> None:
    pause = threading.Event()
    replies = None
    for _ in range(int(seconds / _INTERVAL)):
        ended = job.outcome is not None  # read before the replies, which are written before the end
        replies = _read(record, name)
        if replies is not None or ended:
            break
        pause.wait(_INTERVAL)
    then(replies or {})


def _write(record: Record, name: str, replies: Replies) -> None:
    """Writes the replies as they come over a socket, with the names that the user has for files: `In[3]`."""
    new = record.reply(name).with_suffix(".new")
    with contextlib.suppress(OSError):  # without replies the requester runs into its timeout
        with open(new, "wb", opener=open_private) as file:
            for rank, event in replies.items():
                file.writelines(_frame(rank, event))
        os.replace(new, record.reply(name))


def _frame(rank: int, event: Event) -> Iterable[bytes | bytearray | memoryview]:
    if isinstance(event, Sampled):
        event = replace(event, frames=stack_frames.with_sources(event.frames))
    elif isinstance(event, Stacks):
        threads = [replace(each, frames=stack_frames.with_sources(each.frames)) for each in event.threads]
        event = replace(event, threads=threads)
    header, blobs = to_wire(event)
    return stream.encode({"rank": rank, **header}, blobs), *blobs


def _read(record: Record, name: str) -> Replies | None:
    """The replies, whose file is removed, if there are any."""
    found = {}
    try:
        for header, blobs in stream.Decoder().feed(record.reply(name).read_bytes()):
            rank, event = header.pop("rank"), from_wire(header, blobs)
            if type(rank) is int and is_sound(event):
                found[rank] = event
        record.reply(name).unlink()
    except (OSError, KeyError, StreamError):
        return None
    return found
