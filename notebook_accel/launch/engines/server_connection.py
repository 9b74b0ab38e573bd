"""The kernel's hold on one server process."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from typing import IO

from notebook_accel.errors import LaunchError
from notebook_accel.launch.system import processes
from notebook_accel.launch.system.limits import explain_refusal
from notebook_accel.launch.wire.stream import Channel, pair

_ENTRY = "notebook_accel.launch.server.main:main"
_WHAT = "the process that starts the ranks"
# Read by the libraries as they load, so a server that has loaded them would hide a change of these.
_LOAD_TIME = ("LD_", "DYLD_", "KMP_", "GOMP_", "OMP_", "MKL_", "OPENBLAS_", "PYTORCH_", "TORCH_", "PYTHON")
_HARMLESS = (
    *("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "PYTHONPATH"),  # ranks apply these themselves
    *("KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK"),  # scikit-learn sets them as it is imported
)


class Server:
    """One server process, or one of its successors."""

    def __init__(self, control: Channel, log: IO[bytes], settings: Mapping[str, str]) -> None:
        self.control = control
        self.settings = settings
        self.importing = ""
        """The package that it was about to import when it was last heard."""
        self._log = log
        self.process: subprocess.Popen[bytes] | None = None

    @classmethod
    def start(cls, method: str, environment: Mapping[str, str], *, detached: bool = False) -> Server:
        ours, theirs = pair()
        log = tempfile.TemporaryFile()  # noqa: SIM115  # lives as long as the server
        server = cls(Channel(ours), log, load_time(environment))
        try:
            server.process = processes.start(
                _ENTRY, theirs, log, method, os.getpid(), environment=environment, detached=detached
            )
        except OSError as error:
            server.control.close()
            raise LaunchError(f"{_WHAT} can't be started: {explain_refusal(error)}") from error
        return server

    def successor(self, modules: Sequence[str], environment: Mapping[str, str], kernel: int | None = None) -> Server:
        """Asks for a copy that has imported more; it says later whether it is ready.

        Args:
            modules: What it is to import.
            environment: What the imports see.
            kernel: The process that it ends with; by default this one.
        """
        ours, theirs = pair()
        request = {
            "op": "preload",
            "modules": list(modules),
            "env": dict(environment),
            "kernel": os.getpid() if kernel is None else kernel,
        }
        try:
            self.control.send(request, fds=[theirs.fileno()])
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        return Server(Channel(ours), os.fdopen(os.dup(self._log.fileno()), "rb"), self.settings)

    def give_away(self) -> Channel:
        """Lets go of it; the control socket is another's from now on."""
        self._log.close()
        return self.control

    def news(self) -> dict[str, object] | None:
        """What the server has said: whether it is ready. `None` while it has said nothing.

        Raises:
            LaunchError: It has ended instead.
        """
        while self.control.has_data():
            messages = self.control.receive(wait=False)
            if messages is None:
                raise LaunchError(self.why_it_ended(), engine_lost=True)
            for message in messages:
                if "importing" not in message.header:
                    return message.header
                self.importing = message.header["importing"]
        return None

    def is_alive(self) -> bool:
        """Whether it has not ended, as far as can be heard."""
        while self.control.has_data():
            if self.control.receive(wait=False) is None:
                return False
        return self.control.is_open

    def why_it_ended(self) -> str:
        """Why it has ended, as far as it has said."""
        return processes.why_it_ended(_WHAT, self._log)

    def retire(self) -> None:
        """Lets it end once its groups have."""
        with contextlib.suppress(OSError):
            self.control.send({"op": "retire"})
        self.close()

    def close(self) -> None:
        """Ends it, and its ranks, now; once it is retired, when its groups have ended."""
        self.control.close()
        self._log.close()
        _reap_later(self.process)


def load_time(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that libraries read as they load."""
    return {name: value for name, value in environment.items() if name.startswith(_LOAD_TIME) and name not in _HARMLESS}


def _reap_later(process: subprocess.Popen[bytes] | None) -> None:
    """Takes a child's exit status off the system, whenever it comes."""
    if process is not None:
        threading.Thread(target=process.wait, name="notebook-accel-reaper", daemon=True).start()
