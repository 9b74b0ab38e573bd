"""A process of this node that starts agents on others, such as `srun`: passes on the order, keeps what they write."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import IO

from notebook_accel.launch.cluster.agent_launcher import Order
from notebook_accel.launch.system import memory, own_process

_EXIT_TIMEOUT = 5.0
"""Seconds to exit for a process whose agents have been disconnected."""
_MOST = 2**16
# The interpreter would put the working directory first, where a user's `random.py` may be.
_BOOTSTRAP = (
    "import sys; sys.path[:] = [folder for folder in sys.path if folder]; "
    "from notebook_accel.launch.cluster.agent.main import main; main()"
)


def agent_command(python: str = sys.executable) -> list[str]:
    """The command line that runs an agent, with the Python at the same path as here."""
    return [python, "-c", _BOOTSTRAP]


class LocalProcess:
    """The process.

    Args:
        command: Its command line. What it runs reads the order from its standard input.
        order: The order. It holds a secret, so it is never on a command line or in an environment.

    Raises:
        OSError: It can't be started.
    """

    def __init__(self, command: Sequence[str], order: Order) -> None:
        self._log: IO[bytes] = memory.open_log()  # lives as long as the process
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=self._log, stderr=self._log, start_new_session=True
        )
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            self._process.stdin.close()

    def exit_code(self) -> int | None:
        """Its exit code; `None` while it runs."""
        return self._process.poll()

    def output(self) -> str:
        """What it and the agents have written."""
        return os.pread(self._log.fileno(), _MOST, 0).decode(errors="replace").strip()

    def stop(self) -> None:
        """Ends it, unless it ends by itself now that its agents have been disconnected."""
        if own_process.start_thread_if_allowed(self._reap, "notebook-accel-reaper") is None:
            self._reap()
        self._log.close()

    def _reap(self) -> None:
        for end in (self._process.terminate, self._process.kill):
            try:
                self._process.wait(_EXIT_TIMEOUT)
            except subprocess.TimeoutExpired:
                end()
        self._process.wait()
