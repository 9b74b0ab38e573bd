"""Reads what the ranks of a job use, while somebody looks at it: their processes, and what drivers measure on GPUs.

It reads once for all ranks, on a thread of this process, at most once a second. It opens nothing in a rank, and no GPU.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from notebook_accel import hardware
from notebook_accel.events import Event, ProcessUsage
from notebook_accel.hardware.process_meter import ProcessMeter
from notebook_accel.launch.job.resources import GpuMeter
from notebook_accel.launch.system import own_process

if TYPE_CHECKING:
    from notebook_accel.hardware import Sensors
    from notebook_accel.launch.job.job import Job

INTERVAL = 1.0
"""Seconds between two readings, at least."""
SHARE = 0.01
"""The most that a reading may take of a core."""


class UsageWatch:
    """Reads, and applies what it has read to the job as events."""

    def __init__(self, job: Job, open_sensors: Callable[[], list[Sensors]] = hardware.open_sensors) -> None:
        self._job = job
        self._reader = _Reader(open_sensors)
        self._thread: threading.Thread | None = None
        self._due = job.started + INTERVAL
        """On the clock of `time.time`. Most jobs have ended before."""

    def refresh(self, is_seen: bool) -> None:
        """Applies what has been read since, and begins to read if that is due.

        Raises:
            Exception: What was raised by a reading.
        """
        if self._thread is not None:
            if self._thread.is_alive():
                return
            self._thread = None
            self._apply()
        now = time.time()
        if is_seen and now >= self._due:
            self._due = now + max(INTERVAL, self._reader.seconds / SHARE)
            wanted = self._wanted()
            if wanted:
                self._thread = own_process.start_thread_if_allowed(
                    partial(self._reader.read, wanted), "notebook-accel usage"
                )

    def close(self) -> None:
        """Ends the reading, and releases the libraries of the GPUs' drivers."""
        if self._thread is not None:
            self._thread.join()
        self._reader.close()

    def _wanted(self) -> dict[int, tuple[int, str]]:
        """By the index of each rank that runs on this machine: its process, and its device."""
        host, devices = socket.gethostname(), self._job.devices
        return {
            index: (state.pid, devices[index % len(devices)] if devices else "")
            for index, state in enumerate(self._job.ranks)
            if state.pid is not None and state.host == host and not state.phase.ended
        }

    def _apply(self) -> None:
        if self._reader.error is not None:
            raise self._reader.error
        ranks = self._job.ranks
        for index, events in self._reader.found.items():
            if index < len(ranks) and not ranks[index].phase.ended:  # it may have ended since
                for event in events:
                    self._job.apply(index, event)


class _Reader:
    """What the thread does: opens the sensors at its first reading, and reads."""

    def __init__(self, open_sensors: Callable[[], list[Sensors]]) -> None:
        self._processes, self._gpus = ProcessMeter(), GpuMeter(open_sensors)
        self.found: dict[int, list[Event]] = {}
        self.error: Exception | None = None
        self.seconds = 0.0
        """The CPU time of the last reading."""

    def read(self, wanted: Mapping[int, tuple[int, str]]) -> None:
        try:
            self._read(wanted)
        except Exception as error:
            self.error = error

    def _read(self, wanted: Mapping[int, tuple[int, str]]) -> None:
        is_first = self._gpus.open()
        began = time.thread_time()
        processes = self._processes.read({pid for pid, _ in wanted.values()})
        if is_first:
            processes = {}  # CPU time is that between two readings
        gpus = self._gpus.read()
        self.found = {
            index: [
                *([ProcessUsage(**vars(processes[pid]))] if pid in processes else []),
                *([gpus[device][1]] if device in gpus else []),
            ]
            for index, (pid, device) in wanted.items()
        }
        self.seconds = time.thread_time() - began

    def close(self) -> None:
        self._gpus.close()
