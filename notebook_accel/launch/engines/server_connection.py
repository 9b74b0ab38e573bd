"""The driver's connection to one fork server process."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import weakref
from collections.abc import Mapping, Sequence
from typing import IO

from notebook_accel.errors import LaunchError
from notebook_accel.launch.system import memory, own_process, processes
from notebook_accel.launch.system.limits import explain_refusal
from notebook_accel.launch.wire.constants import recorder_size
from notebook_accel.launch.wire.stream import Channel, pair

_ENTRY = "notebook_accel.launch.server.main:main"
_WHAT = "the process that starts the ranks"
# Libraries read these as they load, so ranks forked from a server that has loaded them would not see a change.
# Warm ranks have created a process group, too.
_LOAD_VARS = (
    *("LD_", "DYLD_", "KMP_", "GOMP_", "OMP_", "MKL_", "OPENBLAS_", "PYTORCH_", "TORCH_", "PYTHON"),
    "GLOO_DEVICE_",
)
_HARMLESS = (
    *("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "PYTHONPATH"),  # ranks apply these themselves
    *("KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK"),  # scikit-learn sets them as it is imported
    "TORCH_NCCL_ASYNC_ERROR_HANDLING",  # read with each group
    "PYTORCH_NVML_BASED_CUDA_CHECK",  # Lightning sets it as it is imported; torch reads it at each check
)


_IN_CODE = re.compile(r"""["'](?:KMP|GOMP|OMP|MKL|OPENBLAS|PYTORCH|TORCH|GLOO_DEVICE)_\w+\\?["']""")
"""The name of such a variable as a text in Python code."""


_reaped: weakref.WeakSet[subprocess.Popen[bytes]] = weakref.WeakSet()
"""The children for which a thread waits."""


class Server:
    """One server process: started by this one, or forked from another server as its successor."""

    def __init__(self, control: Channel, log: IO[bytes], settings: Mapping[str, str]) -> None:
        self.control = control
        self.settings = settings
        self.importing = ""
        """The package whose import it has announced last."""
        self._report: dict[str, object] | None = None
        self._log = log
        self.process: subprocess.Popen[bytes] | None = None
        """The parent of the server, and of all that came before it."""

    @classmethod
    def start(cls, method: str, environment: Mapping[str, str], *, detached: bool = False) -> Server:
        own_end, server_end = pair()
        log = memory.open_log()  # lives as long as the server
        server = cls(Channel(own_end), log, load_time(environment))
        try:
            server.process = processes.start(
                _ENTRY, server_end, log, method, os.getpid(), environment=environment, detached=detached
            )
        except BaseException as error:
            server.close()
            if isinstance(error, OSError):
                raise LaunchError(f"{_WHAT} can't be started: {explain_refusal(error)}") from error
            raise
        return server

    def successor(self, modules: Sequence[str], environment: Mapping[str, str], kernel: int | None = None) -> Server:
        """Requests a fork of this server that imports more modules; `poll` returns whether it is ready.

        Args:
            modules: The modules to import.
            environment: The environment of the imports.
            kernel: The process with which it ends; by default this one.
        """
        own_end, server_end = pair()
        request = {
            "op": "preload",
            "modules": list(modules),
            "env": dict(environment),
            "kernel": os.getpid() if kernel is None else kernel,
        }
        try:
            self.control.send(request, fds=[server_end.fileno()])
        except OSError:
            own_end.close()
            raise
        finally:
            server_end.close()
        found = Server(Channel(own_end), os.fdopen(os.dup(self._log.fileno()), "rb"), self.settings)
        found.process = self.process
        return found

    def detach_control(self) -> Channel:
        """Returns the control socket, which another process will own."""
        self._log.close()
        return self.control

    def poll(self) -> dict[str, object] | None:
        """The server's report whether it is ready; `None` while there is none.

        Raises:
            LaunchError: The server has ended instead.
        """
        while self._report is None and self.control.has_data():
            messages = self.control.receive(wait=False)
            if messages is None:
                raise LaunchError(self.why_it_ended(), engine_lost=True)
            for message in messages:
                if "importing" in message.header:
                    self.importing = message.header["importing"]
                else:
                    self._report = message.header
        return self._report

    def is_alive(self) -> bool:
        """Whether the control socket is still open at the other end."""
        while self.control.has_data():
            if self.control.receive(wait=False) is None:
                return False
        return self.control.is_open

    def wake(self) -> None:
        """Has the server continue if it was stopped (SIGSTOP), and do what it was asked since then."""
        if self.process is not None:
            self.process.send_signal(signal.SIGCONT)

    def why_it_ended(self) -> str:
        """Why it has ended, according to its log."""
        return processes.why_it_ended(_WHAT, self._log)

    def retire(self) -> None:
        """Lets the server end once its ranks have."""
        with contextlib.suppress(OSError):
            self.control.send({"op": "retire"})
        self.close()

    def close(self) -> None:
        """Ends the server and its ranks now; if it is retired, once its ranks have ended."""
        self.control.close()
        self._log.close()
        self.wake()
        _reap_later(self.process)


def load_time(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that libraries read when they load. A change of any of them needs a new server.

    What each launch adds by default counts as set, so that a launch can use the server that was started before it.
    """
    found = {**environment, **recorder_size(environment)}
    return {name: value for name, value in found.items() if name.startswith(_LOAD_VARS) and name not in _HARMLESS}


def may_set_load_time(source: str) -> bool:
    """Whether code names a variable that libraries read when they load, so that it may set it before it imports them.

    A rank that is to find the variable can't be a fork of a server that has loaded them.
    """
    return _IN_CODE.search(source) is not None


def _reap_later(child: subprocess.Popen[bytes] | None) -> None:
    """Waits for a child on a thread, so that it does not stay a zombie."""
    if child is not None and child not in _reaped:
        _reaped.add(child)
        own_process.start_thread_if_allowed(child.wait, "notebook-accel-reaper")  # without one, it stays a zombie
