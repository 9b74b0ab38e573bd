"""Controls the agent, the process that torch's elastic launcher runs in.

    command line ─ fork ──▶ agent ────────────────────▶ ranks
      (this)     ◀─ exit ─  (elastic.py, torch.distributed.run)

The agent has its own process group, so Ctrl-C in the terminal signals only the command, which forwards the signal once.
If either process dies, by any signal, the other ends the ranks and their child processes; if both die, the system kills
the ranks.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from types import FrameType

from notebook_accel.cli.exit_codes import INTERRUPTED
from notebook_accel.cli.launch import elastic
from notebook_accel.cli.launch.elastic import Order
from notebook_accel.errors import ConfigurationError
from notebook_accel.launch.system import own_process

_NOTICE_AFTER = 1.0
"""Seconds after an interrupt until a notice says what the command is waiting for."""
_KILLED = "error: torch's launcher was killed (SIGKILL), perhaps because memory ran out; its ranks have been ended"
_WAITING_NOTICE = "waiting for the ranks to end; interrupt again to kill them now"


def run(order: Order) -> int:
    """Runs it in an agent; returns the exit code: the first failing rank's if one failed."""
    try:
        folder = tempfile.TemporaryDirectory(prefix="notebook-accel-", ignore_cleanup_errors=True)
    except OSError as error:
        raise ConfigurationError(
            f"torch's launcher needs a temporary folder: {error}. Set TMPDIR to a folder that can be written."
        ) from None
    with folder as scratch:
        agent = _Agent(replace(order, scratch=scratch))
        try:
            return agent.wait()
        finally:
            agent.kill()


class _Agent:
    """The agent process."""

    def __init__(self, order: Order) -> None:
        own_process.adopt_orphans()
        sys.stdout.flush()
        sys.stderr.flush()
        end, self._end = os.pipe()  # closed by the system when this process ends
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self._end)
            os.setpgid(0, 0)
            elastic.run_agent(order, end)
        os.close(end)

    def wait(self) -> int:
        """Waits until it has ended; returns the exit code."""
        with self._forwarding_signals():
            _, status = os.waitpid(self._pid, 0)
            code = os.waitstatus_to_exitcode(status)
            if code != 0:
                own_process.kill_children()
        if code == -signal.SIGKILL and not self._killed:
            sys.stderr.write(f"{_KILLED}\n")
        return INTERRUPTED if self._killed else code if code >= 0 else 128 - code

    def kill(self) -> None:
        """Kills the agent if it is still there, because the command has failed."""
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)

    _killed = False
    _interrupted = False

    @contextlib.contextmanager
    def _forwarding_signals(self) -> Iterator[None]:
        before = {signum: signal.signal(signum, self._forward) for signum in elastic.heeded_signals()}
        before[signal.SIGALRM] = signal.signal(signal.SIGALRM, self._notify_waiting)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            for signum, handler in before.items():
                signal.signal(signum, handler)
            if self._interrupted:
                signal.signal(signal.SIGINT, signal.SIG_IGN)  # another interrupt would only hide the exit code

    def _forward(self, signum: int, _: FrameType | None) -> None:
        if signum == signal.SIGINT and self._interrupted:
            self._killed = True
            signum = signal.SIGKILL
        elif signum == signal.SIGINT:
            self._interrupted = True
            signal.setitimer(signal.ITIMER_REAL, _NOTICE_AFTER)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signum)

    def _notify_waiting(self, _: int, __: FrameType | None) -> None:
        os.write(2, f"{_WAITING_NOTICE}\n".encode())
