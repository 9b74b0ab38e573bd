"""Watches over the process that torch's elastic launcher runs in.

    command line ─ order ─▶ agent ────────────────────▶ ranks
      (this)     ◀─ exit ─  (elastic.py, torch.distributed.run)

The agent begins to import torch before the command line has read its options, so they cost no time. It stands in a
process group of its own: an interrupt from the terminal comes to the command line alone, which passes it on once. If
either dies, by whatever signal, the other ends the ranks and what these have started; if both do, the system kills the
ranks.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from types import FrameType
from typing import TYPE_CHECKING

from notebook_accel.cli.exit_codes import INTERRUPTED
from notebook_accel.cli.launch import elastic
from notebook_accel.cli.launch.elastic import Order
from notebook_accel.launch.system import children

if TYPE_CHECKING:
    from notebook_accel.cli.watch.watcher import Watcher

_PATIENCE = 1.0
"""Seconds after an interrupt before saying what is being waited for."""
_KILLED = "error: torch's launcher was killed (SIGKILL), perhaps for want of memory; its ranks have been ended"
_PATIENT = "waiting for the ranks to end; interrupt again to kill them now"


class Agent:
    """The process that torch's launcher runs in, as the command line sees it."""

    def __init__(self) -> None:
        children.adopt_orphans()
        sys.stdout.flush()
        sys.stderr.flush()
        orders, self._orders = os.pipe()
        self._end, living = os.pipe()
        self._watcher: Watcher | None = None
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self._orders)
            os.setpgid(0, 0)
            elastic.serve(orders)
        os.close(orders)
        os.close(living)

    def run(self, order: Order, watcher: Watcher | None = None) -> int:
        """Has it run the order, and returns the exit code: the first failing rank's, where one failed.

        Args:
            order: What to run.
            watcher: Shows what the ranks do meanwhile.
        """
        import json  # these, after the fork
        import tempfile

        self._watcher = watcher
        with (
            tempfile.TemporaryDirectory(prefix="notebook-accel-", ignore_cleanup_errors=True) as scratch,
            self._signals_passed_on(),
        ):
            address = "" if watcher is None else watcher.address
            order = replace(order, scratch=scratch, watcher=address)
            os.write(self._orders, json.dumps(asdict(order)).encode() + b"\n")
            if watcher is not None:
                watcher.attend(self._end)
            _, status = os.waitpid(self._pid, 0)
            code = os.waitstatus_to_exitcode(status)
            if code != 0:
                children.kill_all()
            if watcher is not None:
                watcher.finish(code)
        if code == -signal.SIGKILL and not self._killed:
            sys.stderr.write(f"{_KILLED}\n")
        return INTERRUPTED if self._killed else code if code >= 0 else 128 - code

    def dismiss(self) -> None:
        """Ends it, with whatever it has started."""
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)

    _killed = False
    _interrupted = False

    @contextlib.contextmanager
    def _signals_passed_on(self) -> Iterator[None]:
        before = {signum: signal.signal(signum, self._pass_on) for signum in elastic.SIGNALS}
        before[signal.SIGALRM] = signal.signal(signal.SIGALRM, self._tell_patience)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            for signum, handler in before.items():
                signal.signal(signum, handler)
            if self._interrupted:
                signal.signal(signal.SIGINT, signal.SIG_IGN)  # one more would only hide the exit code

    def _pass_on(self, signum: int, _: FrameType | None) -> None:
        if signum == signal.SIGINT and self._interrupted:
            self._killed = True
            signum = signal.SIGKILL
        elif signum == signal.SIGINT:
            self._interrupted = True
            signal.setitimer(signal.ITIMER_REAL, _PATIENCE)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signum)
        if self._watcher is not None and self._interrupted:
            self._watcher.interrupt()

    def _tell_patience(self, _: int, __: FrameType | None) -> None:
        if self._watcher is not None:
            self._watcher.notice(_PATIENT)
        else:
            os.write(2, f"{_PATIENT}\n".encode())
