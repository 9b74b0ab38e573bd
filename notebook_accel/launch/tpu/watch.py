"""The supervisor's second thread: forwards signals to the ranks' processes, and reports their ends to the kernel.

The main thread is always inside `torch_xla.launch`.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import resource
import signal
import socket
import threading
import time
from typing import Any

from notebook_accel.launch.wire.event_loop import Calls, EventLoop
from notebook_accel.launch.wire.stream import Channel, close_all

_PACKET = 4096
_REAP_TIMEOUT = 5.0
"""Seconds to wait for the pool to reap a child that has ended."""


class Watch:
    """The thread. Reports are packets, so that all processes can share one socket.

    Args:
        control: Receives which ranks to signal, and sends how ranks ended.
        reports: Receives which ranks each process has, and how they ended.
    """

    def __init__(self, control: Channel, reports: socket.socket) -> None:
        self._control = control
        self._reports = reports
        self._loop = EventLoop()
        self._calls = Calls(self._loop)
        self._ranks_by_pid: dict[int, list[int]] = {}
        """The ranks of each process that has not ended."""
        self._codes: dict[int, int] = {}
        """How each rank's thread has ended."""
        self._finishing = False
        self._thread = threading.Thread(target=self._run, name="notebook-accel-watch", daemon=True)

    def start(self) -> None:
        self._reports.setblocking(False)
        self._loop.register(self._control, self._on_control)
        self._loop.register(self._reports, self._drain)
        self._thread.start()

    def finish(self) -> None:
        """Waits until the end of each rank has been sent."""
        self._calls.add(self._on_finish)
        self._thread.join()
        self._calls.close()

    def report_failure(self, error: str) -> None:
        """Sends the kernel why the ranks could not be started."""
        with contextlib.suppress(OSError):
            self._control.send({"error": error})

    def _run(self) -> None:
        while not (self._finishing and not self._ranks_by_pid):
            self._loop.run_once()

    def _on_finish(self) -> None:
        self._finishing = True
        self._drain()
        self._report_ends(os.getpid(), 0, None)  # a rank in the supervisor itself, which exits now

    def _on_report(self) -> None:
        packet, fds, _, _ = socket.recv_fds(self._reports, _PACKET, 1)
        try:
            self._on_packet(json.loads(packet))
        finally:
            close_all(fds)  # which the process waits for

    def _on_packet(self, report: dict[str, Any]) -> None:
        if "ranks" in report:
            self._ranks_by_pid[report["pid"]] = report["ranks"]
            if report["pid"] != os.getpid():
                self._watch_process(report["pid"])
        else:
            self._codes[report["rank"]] = report["code"]

    def _watch_process(self, pid: int) -> None:
        children = [child for child in multiprocessing.active_children() if child.pid == pid]
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:  # it was killed while it waited, and the pool has reaped it
            self._drain()
            self._report_ends(pid, -signal.SIGKILL, None)
            return

        def on_end() -> None:
            self._loop.unregister(handle)
            os.close(handle)
            self._drain()
            status = _status(children[0]) if children else -signal.SIGKILL
            self._report_ends(pid, status, _peak(len(self._ranks_by_pid)))

        self._loop.register(handle, on_end)

    def _drain(self) -> None:
        """Reads the reports that are there, such as the last of a process that has ended."""
        with contextlib.suppress(BlockingIOError):
            while True:
                self._on_report()

    def _report_ends(self, pid: int, status: int, peak: int | None) -> None:
        at = time.time()
        for rank in self._ranks_by_pid.pop(pid, []):
            message = {"rank": rank, "status": self._codes.get(rank, status), "at": at, "peak": peak}
            with contextlib.suppress(OSError):
                self._control.send(message)

    def _on_control(self) -> None:
        messages = self._control.receive(wait=False)
        if messages is None:  # the kernel has ended; the server kills this group
            self._loop.unregister(self._control)
        for message in messages or ():
            for pid, ranks in self._ranks_by_pid.items():
                if message.header["rank"] in ranks:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, message.header["signum"])


def _status(child: multiprocessing.process.BaseProcess) -> int:
    """How a process has ended, which the pool's thread reaps: its status, or the negative number of a signal."""
    deadline = time.monotonic() + _REAP_TIMEOUT
    while child.exitcode is None and time.monotonic() < deadline:
        time.sleep(0.001)
    return -signal.SIGKILL if child.exitcode is None else child.exitcode


def _peak(processes: int) -> int | None:
    """The peak memory of the process, in bytes. For several, the system does not say whose it was."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 if processes == 1 else None
