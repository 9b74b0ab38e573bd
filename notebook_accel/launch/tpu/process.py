"""A process that torch_xla has started, and the ranks in it: one, or a thread for each core of its chip."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import threading
from collections.abc import Sequence
from typing import Any

from notebook_accel import events, rank_local
from notebook_accel.launch.rank.rank import Rank
from notebook_accel.launch.system import own_process
from notebook_accel.launch.tpu import thread_output
from notebook_accel.launch.tpu.slots import TpuGroup
from notebook_accel.launch.wire import constants, pipe_marks
from notebook_accel.launch.wire.stream import Channel

_group: TpuGroup | None = None
_process_lock = threading.Lock()


def set_group(group: TpuGroup) -> None:
    """Makes the forks of this process inherit the group, since torch_xla passes them only picklable objects."""
    global _group
    _group = group


def run_rank(ordinal: int) -> None:
    """The function that torch_xla calls, on a thread of its own for each device."""
    assert _group is not None
    with _process_lock:
        if not _group.process:
            _group.process.append(Process(_group))
    _group.process[0].run_rank(ordinal)


class Process:
    """The ranks of this process, a thread each, and what they share."""

    def __init__(self, group: TpuGroup) -> None:
        self._group = group
        self._ordinals: list[int] = []
        self._barrier = threading.Barrier(1 if group.single else _threads_per_process(), action=self._on_all_here)

    def run_rank(self, ordinal: int) -> None:
        """Takes the slot of an ordinal, runs the calls that come there, and reports how the rank ended."""
        self._ordinals.append(ordinal)
        self._barrier.wait()
        slot = self._group.slots[ordinal]
        if len(self._ordinals) > 1:
            rank_local.enter({})
            thread_output.set_streams(slot.out, slot.err)
            pipe_marks.set_pipes([slot.out, slot.err])
        channel = Channel(socket.socket(fileno=slot.channel))
        rank = Rank(
            channel, self._group.heartbeat, isolated=False, pace=constants.report_interval(len(self._group.slots))
        )
        try:
            rank.serve()
        finally:
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(Exception):
                    stream.flush()
            self._report({"rank": ordinal, "code": int(rank.failed)})
        rank.close()

    def _on_all_here(self) -> None:
        """Sets up this process, once all of its ranks' threads have started."""
        slots = self._group.slots
        for ordinal, slot in slots.items():
            if ordinal not in self._ordinals:
                for fd in (slot.channel, slot.out, slot.err):
                    os.close(fd)
        first = slots[min(self._ordinals)]
        own_process.limit_threads()
        if len(self._ordinals) > 1:
            thread_output.install(first.out, first.err)
        else:
            own_process.redirect_streams(first.out, first.err)
            pipe_marks.set_pipes([os.dup(1), os.dup(2)])
            os.environ.update(first.environment)
        os.register_at_fork(after_in_child=self._close_in_child)
        introduce(self._group.reports, self._ordinals)

    def _close_in_child(self) -> None:
        """In a worker that the user's code forks: it must neither send as a rank nor keep a channel open."""
        events.set_sink(None)
        for ordinal in self._ordinals:
            with contextlib.suppress(OSError):
                os.close(self._group.slots[ordinal].channel)

    def _report(self, report: dict[str, Any]) -> None:
        self._group.reports.send(json.dumps(report).encode())


def introduce(reports: socket.socket, ordinals: Sequence[int]) -> None:
    """Reports this process and its ranks, and waits until the supervisor watches it.

    The supervisor can't find the status of a process that has ended before.
    """
    near, far = socket.socketpair()
    with near:
        with far:
            socket.send_fds(reports, [json.dumps({"pid": os.getpid(), "ranks": ordinals}).encode()], [far.fileno()])
        near.recv(1)


def _threads_per_process() -> int:
    import torch_xla.runtime

    return int(torch_xla.runtime.addressable_device_count())
