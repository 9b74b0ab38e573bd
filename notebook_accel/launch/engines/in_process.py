"""Runs a single rank on a thread of this process: nothing is copied, and a debugger works.

For debugging a function, and for systems on which no process can be started. The rank shares the notebook's memory,
environment and output, and cannot be killed; an interrupt is raised in it between two of its Python instructions.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Collection

from notebook_accel.errors import LaunchError
from notebook_accel.events import Exited
from notebook_accel.launch.engines.contract import Engine, RanksSpec
from notebook_accel.launch.engines.local_ranks import LocalRanks
from notebook_accel.launch.rank.patches import store_of_one
from notebook_accel.launch.rank.rank import Rank
from notebook_accel.launch.system import own_process
from notebook_accel.launch.system.own_process import set_environment
from notebook_accel.launch.wire.event_loop import Calls, EventLoop
from notebook_accel.launch.wire.payload import Payload
from notebook_accel.launch.wire.stream import Channel, pair

_POLL_INTERVAL = 0.1
"""Seconds between two checks whether the rank has ended."""
_environment = threading.Lock()
"""Held by the rank whose environment is in `os.environ`, which all threads share."""


class InProcessEngine(Engine):
    """Starts a rank as a thread of this process; there is nothing to prepare."""

    name = "inprocess"
    isolated = False
    max_ranks = 1

    def _start(self, spec: RanksSpec, loop: EventLoop) -> InProcessRanks:
        if spec.rendezvous.listener is not None:
            spec.rendezvous.listener.close()  # a single rank has its store in its own memory
        if spec.size > 1 or spec.rendezvous.num_nodes > 1:
            raise LaunchError("the inprocess engine runs a single rank: pass num_processes=1, or choose another engine")
        return InProcessRanks(spec, loop)


class InProcessRanks(LocalRanks):
    """The one rank, on its thread."""

    def __init__(self, spec: RanksSpec, loop: EventLoop) -> None:
        super().__init__(spec, loop)
        own_end, rank_end = pair()
        self._calls = Calls(loop)
        self._environment = dict(spec.environments[0])
        self._rendezvous = spec.rendezvous
        self._rank = Rank(Channel(rank_end), spec.heartbeat, isolated=False)
        self._add(Channel(own_end), {})  # the rank writes to the notebook's own output
        try:
            own_process.start_thread(self._serve, "notebook-accel-rank")
        except LaunchError:
            self._report_exit()
            self.close()
            raise

    def _call(self, ranks: Collection[int], packed: Payload) -> None:
        assert packed.unpacked is not None
        held = packed.unpacked
        self._rank.submit(lambda: held)

    def signal(self, rank: int, signum: int) -> None:
        """Raises `KeyboardInterrupt` in the rank for any signal that should end it."""
        if signum not in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            return
        if not self._rank.is_running:
            self._rank.is_wanted = False
        else:
            self._rank.interrupt()

    def close_store(self) -> None:
        pass  # a single rank waits for no other

    def expect_ends(self) -> None:
        pass

    def close(self) -> None:
        self._rank.is_wanted = False
        self.signal(0, signal.SIGINT)
        self._calls.close()
        super().close()

    def _on_thread_end(self) -> None:
        self._on_exit(0, Exited(code=int(self._rank.failed), at=time.time()))

    def _serve(self) -> None:
        while not _environment.acquire(timeout=_POLL_INTERVAL):
            if not self._rank.is_wanted:
                self._report_exit()
                return
        before = dict(os.environ)
        set_environment({**before, **self._environment})
        try:
            with store_of_one.at(self._rendezvous.host, self._rendezvous.port):
                self._rank.serve()
        finally:
            distributed = sys.modules.get("torch.distributed")
            if distributed is not None and distributed.is_available() and distributed.is_initialized():
                distributed.destroy_process_group()
            set_environment(before)
            _environment.release()
            self._report_exit()

    def _report_exit(self) -> None:
        self._calls.add(self._on_thread_end)
        self._rank.close()
