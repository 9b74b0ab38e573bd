"""Starts a job that outlives the kernel: sends it to a separate driver process and follows it through its journal."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from notebook_accel import errors
from notebook_accel.errors import LaunchError
from notebook_accel.launch.driver import attach
from notebook_accel.launch.driver.detached_main import JobOrder
from notebook_accel.launch.driver.launch import Launch
from notebook_accel.launch.job import rules
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.rules import NewRule
from notebook_accel.launch.journal import records
from notebook_accel.launch.journal.saved_launch import SavedLaunch
from notebook_accel.launch.plan import plan
from notebook_accel.launch.plan.plan import Plan
from notebook_accel.launch.show import console
from notebook_accel.launch.system import memory, processes
from notebook_accel.launch.wire import payload
from notebook_accel.launch.wire.payload import Payload
from notebook_accel.launch.wire.stream import Channel, is_readable, pair

_ENTRY = "notebook_accel.launch.driver.detached_main:main"
_WHAT = "the process for the detached job"
_START_TIMEOUT = 60.0
"""How many seconds the process has to report that it is ready."""


def launch(
    planned: Plan,
    environ: Mapping[str, str],
    packed: Payload,
    name: str,
    saved: SavedLaunch | None,
    given: Sequence[NewRule],
    make: Callable[..., Launch],
) -> Job:
    """Starts the job, and shows it below this cell.

    Args:
        planned: The plan.
        environ: The environment of the launch.
        packed: The packed call.
        name: The name of its function.
        saved: What is needed to launch it again.
        given: The rules.
        make: Makes the launch there; can be pickled.

    Raises:
        NotebookAccelError: What `make` raises.
        LaunchError: The process for the job can't be started, or can't write the job's journal.
        PayloadError: A function that a rule calls can't be pickled.
    """
    origin, cells = console.current.origin(), payload.sources(packed)
    order = JobOrder(planned, dict(environ), packed.layout, name, origin, cells, saved, rules.pack(given), make)
    own_end, child_end = pair()
    with memory.open_log() as log, contextlib.closing(Channel(own_end)) as channel:
        try:
            process = processes.start(_ENTRY, child_end, log)
        except OSError as error:
            raise LaunchError(f"{_WHAT} could not be started: {error}") from error
        with contextlib.suppress(OSError):  # it has exited, and its log says why
            channel.send({}, blobs=[pickle.dumps(order), *packed.parts], fds=packed.fds)
        process.wait()  # it forks the driver, and exits at once
        reply = _receive_reply(channel)
        if reply is None:
            raise LaunchError(processes.why_it_ended(_WHAT, log))
        job = attach.follow(records.Record(records.folder() / reply["folder"]))
        _send_go(channel, planned, reply["pid"], environ)
        return job


def _send_go(channel: Channel, planned: Plan, pid: int, environ: Mapping[str, str]) -> None:
    """Sends the job to the process, along with this process's warm fork server if the engine has one."""
    control = plan.engine_of(planned).hand_over(pid, environ)
    if control is None:
        channel.send({"go": True})
        return
    with contextlib.closing(control):
        channel.send({"go": True}, fds=[control.fileno()])


def _receive_reply(channel: Channel) -> dict[str, Any] | None:
    """The reply with the name of the job's folder and the process's id; `None` if the process has exited."""
    while is_readable(channel, _START_TIMEOUT):
        messages = channel.receive(wait=False)
        if messages is None:
            return None
        for message in messages:
            if "error" in message.header:
                raise getattr(errors, message.header.get("type", ""), LaunchError)(message.header["error"])
            return message.header
    raise LaunchError(f"{_WHAT} was not ready within {_START_TIMEOUT:g} s")
