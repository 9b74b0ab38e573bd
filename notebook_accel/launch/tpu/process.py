"""A process that torch_xla has started, and the ranks in it: one, or a thread for each core of its chip."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import threading
from typing import Any

from notebook_accel import events, rank_local
from notebook_accel.launch.rank.rank import Rank
from notebook_accel.launch.system import own_process
from notebook_accel.launch.tpu import thread_output
from notebook_accel.launch.tpu.slots import TpuGroup
from notebook_accel.launch.wire import constants
from notebook_accel.launch.wire.stream import Channel

group: TpuGroup | None = None
"""What the supervisor has left for its forks: torch_xla hands them nothing that pickle can't take."""
_gathering = threading.Lock()


def be_rank(ordinal: int) -> None:
    """The function that torch_xla calls, on a thread of its own for each device."""
    assert group is not None
    with _gathering:
        if not group.begun:
            group.begun.append(Process(group))
    group.begun[0].be_rank(ordinal)


class Process:
    """What the ranks of this process share."""

    def __init__(self, group: TpuGroup) -> None:
        self._group = group
        self._ordinals: list[int] = []
        self._barrier = threading.Barrier(1 if group.alone else _threads(), action=self._settle)

    def be_rank(self, ordinal: int) -> None:
        """Takes a seat, runs the calls that come there, and reports how it ended."""
        self._ordinals.append(ordinal)
        self._barrier.wait()
        slot = self._group.slots[ordinal]
        if len(self._ordinals) > 1:
            rank_local.enter({})
            thread_output.take_slot(slot.out, slot.err)
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

    def _settle(self) -> None:
        """Makes this process that of its ranks, once all of them are here."""
        slots = self._group.slots
        for ordinal, slot in slots.items():
            if ordinal not in self._ordinals:
                for fd in (slot.channel, slot.out, slot.err):
                    os.close(fd)
        first = slots[min(self._ordinals)]
        own_process.limit_threads()
        if len(self._ordinals) > 1:
            thread_output.share(first.out, first.err)
        else:
            own_process.redirect_streams(first.out, first.err)
            os.environ.update(first.environment)
        os.register_at_fork(after_in_child=self._forget)
        self._report({"pid": os.getpid(), "ranks": self._ordinals})

    def _forget(self) -> None:
        """A worker that the user's code forks must not speak for a rank, nor keep its channel open."""
        events.set_sink(None)
        for ordinal in self._ordinals:
            with contextlib.suppress(OSError):
                os.close(self._group.slots[ordinal].channel)

    def _report(self, report: dict[str, Any]) -> None:
        self._group.reports.send(json.dumps(report).encode())


def _threads() -> int:
    import torch_xla.runtime

    return int(torch_xla.runtime.addressable_device_count())
