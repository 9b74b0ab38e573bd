"""Answers the requests of the Jupyter server until it closes the socket, or ends.

A request is a line of JSON, `{"id": 7, "call": "jobs", "arguments": {"brief": true}}`. The answer is such a line, with
the status of HTTP and the number of bytes that follow it, `{"id": 7, "status": 200, "size": 13000}`, and then these
bytes: JSON for the browser, or a text if it is an error. Answers may come in a different order from the requests.
"""

from __future__ import annotations

import json
import queue
import socket
import threading
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from notebook_accel.errors import ConfigurationError, JobEndedError, JobLostError
from notebook_accel.jupyter.model import NotedOutput
from notebook_accel.jupyter.reader import job_texts
from notebook_accel.jupyter.reader.comparisons import Comparisons
from notebook_accel.jupyter.reader.device_history import DeviceHistory
from notebook_accel.jupyter.reader.job_list import (
    JobList,
    JobNotDeletedError,
    JobNotMarkedError,
    JobRunsError,
    UnknownJobError,
)
from notebook_accel.jupyter.reader.panels import BadMessageError, Panels, UnreadableJobError
from notebook_accel.launch.journal import pages

IDLE = 30.0
"""Seconds without a request for devices after which the drivers' libraries are closed; for panels, journals."""
_STATUS: dict[type[Exception], int] = {
    BadMessageError: 400,
    ConfigurationError: 400,
    UnknownJobError: 404,
    JobRunsError: 409,
    UnreadableJobError: 409,
    JobEndedError: 409,
    JobLostError: 409,
    TimeoutError: 504,
    JobNotDeletedError: 500,
    JobNotMarkedError: 500,
}
"""The status of errors that users can do something about."""


def main(fd: int) -> None:
    """The process's whole life.

    Args:
        fd: The socket to the Jupyter server.
    """
    with socket.socket(fileno=fd) as channel:
        calls, lock = _calls(), threading.Lock()
        for line in channel.makefile("rb"):
            request = json.loads(line)
            worker, call = calls[request["call"]]
            worker.submit(partial(_answer, channel, lock, request, call))


class _Worker:
    """Runs calls one after the other, on a thread of its own, which ends with the process."""

    def __init__(self, name: str, when_idle: Callable[[], object] = lambda: None) -> None:
        self._calls: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._when_idle = when_idle
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def submit(self, call: Callable[[], object]) -> None:
        self._calls.put(call)

    def _run(self) -> None:
        while True:
            try:
                call = self._calls.get(timeout=IDLE)
            except queue.Empty:
                self._when_idle()
            else:
                call()


def _calls() -> dict[str, tuple[_Worker, Callable[..., Any]]]:
    """By name: who runs a call, and what it does. A driver that hangs must not hold up the list of jobs."""
    jobs, devices, panels = JobList(), _Devices(), Panels()
    of_jobs, of_devices = _Worker("jobs"), _Worker("devices", devices.close)
    of_comparisons, of_panels = _Worker("comparisons"), _Worker("panels", panels.close)
    texts = job_texts.JobTexts()
    of_agents, of_requests = _Worker("agents", texts.close), _Worker("requests of agents")
    return {
        "agent.list": (of_agents, texts.list),
        "agent.describe": (of_agents, texts.describe),
        "agent.explain": (of_agents, texts.explain),
        "agent.log": (of_agents, texts.log),
        "agent.metric": (of_agents, texts.metric),
        "agent.compare": (of_agents, texts.compare),
        "agent.look": (of_agents, texts.look),
        "agent.stop": (of_requests, job_texts.stop),
        "agent.checkpoint": (of_requests, job_texts.checkpoint),
        "jobs": (of_jobs, jobs.listing),
        "stop": (of_jobs, jobs.stop),
        "delete": (of_jobs, jobs.delete),
        "mark": (of_jobs, jobs.mark),
        "compare": (of_comparisons, Comparisons().compare),
        "panel": (of_panels, panels.update),
        "announce": (of_panels, pages.announce),
        "outputs": (of_panels, _outputs),
        "devices": (of_devices, devices.listing),
    }


def _outputs(notebook: str) -> list[NotedOutput]:
    return [{"job": record.id, "cell": found.cell, "at": found.at} for record, found in pages.outputs_of(notebook)]


class _Devices:
    """The history of the devices, for the server's folder of notebooks."""

    def __init__(self) -> None:
        self._history: DeviceHistory | None = None

    def listing(self, folder: str) -> Any:
        if self._history is None:
            self._history = DeviceHistory(Path(folder).expanduser())
        return self._history.listing()

    def close(self) -> None:
        if self._history is not None:
            self._history.close()


def _answer(channel: socket.socket, lock: threading.Lock, request: Any, call: Callable[..., Any]) -> None:
    status = 200
    try:
        body = _bytes(json.dumps(call(**request["arguments"]), separators=(",", ":"), ensure_ascii=False))
    except Exception as error:
        status = _STATUS.get(type(error), 500)
        if type(error) not in _STATUS:
            traceback.print_exc()  # in the log of the Jupyter server
        body = _bytes(str(error) or type(error).__name__)
    header = json.dumps({"id": request["id"], "status": status, "size": len(body)}).encode() + b"\n"
    with lock:
        channel.sendall(header + body)


def _bytes(text: str) -> bytes:
    """A path that isn't valid UTF-8 has surrogates, which can't be encoded."""
    return text.encode(errors="replace")
