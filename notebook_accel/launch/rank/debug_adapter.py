"""Runs debugpy in a rank. Its client is the debugger of the notebook; their messages travel on the rank's channel.

debugpy normally starts a server for its client. Here, it gets one end of a socket pair, so nothing listens.
"""

from __future__ import annotations

import importlib
import json
import os
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from typing import IO, Any

from notebook_accel.events import DebugReplied, DebugRequested
from notebook_accel.launch.rank.patches import process_group_timeouts

_PATIENCE = 10.0
"""Seconds to wait for debugpy's response to the requests that come before a call."""
_NO_VALIDATION = "PYDEVD_DISABLE_FILE_VALIDATION"
"""The variable that keeps debugpy from writing advice on Python's own options to standard error."""


def hide_thread(thread: threading.Thread) -> None:
    """Makes debugpy neither trace nor hold a thread."""
    found: Any = thread
    found.pydev_do_not_trace = found.is_pydev_daemon_thread = True


class Debugger:
    """The debugger of this process, which starts at the first request.

    Args:
        reply: Takes debugpy's responses and events, on a thread of this class.
    """

    def __init__(self, reply: Callable[[DebugReplied], object]) -> None:
        self._reply = reply
        self._socket: socket.socket | None = None
        self._pydevd: Any = None
        self._handled = threading.Event()
        self._awaited: object = None
        """The number of the request whose response sets `_handled`."""
        self._is_attached = False
        """Whether a client takes the events."""
        self._hook = sys.breakpointhook
        """What `breakpoint()` calls without a client."""

    def configure(self, request: DebugRequested) -> None:
        """Has debugpy handle the requests that come before a call. To be called on the thread that runs the call."""
        try:
            self._trace_this_thread()
        except ImportError as error:
            sys.stderr.write(
                f"notebook-accel: this rank can't be debugged: {error}. Install debugpy in its environment\n"
            )
            return
        self._handled.clear()
        self._awaited = json.loads(request.messages[-1])["seq"]
        self.send(request.messages)
        self._handled.wait(_PATIENCE)

    def send(self, messages: Sequence[str]) -> None:
        """Passes requests to debugpy, if it is running."""
        if self._socket is not None:
            for message in messages:
                self._is_attached = json.loads(message)["command"] != "disconnect"
                content = message.encode()
                self._socket.sendall(b"Content-Length: %d\r\n\r\n%b" % (len(content), content))

    def _trace_this_thread(self) -> None:
        """Starts debugpy; or has it trace this thread again, which an exception in its own code may have ended."""
        if self._pydevd is None:
            self._pydevd = _import_pydevd()
            self._hook, sys.breakpointhook = sys.breakpointhook, self._on_breakpoint
            process_group_timeouts.remove()
            os.register_at_fork(after_in_child=self._leave_child)
        is_new = self._socket is None
        if is_new:
            own, other = socket.socketpair()
            self._pydevd.PyDB.connect = lambda debugger, *_: debugger.initialize_network(other, False)
        self._pydevd.settrace(
            host="", port=0, suspend=False, wait_for_ready_to_run=False, notify_stdin=False, protocol="dap"
        )
        if is_new:
            self._socket = own
            reader = threading.Thread(
                target=self._read, args=(own.makefile("rb"),), name="notebook-accel-debugger", daemon=True
            )
            hide_thread(reader)
            reader.start()

    def _on_breakpoint(self, *args: Any, **kwargs: Any) -> None:
        if not self._is_attached:
            self._hook(*args, **kwargs)
            return
        self._pydevd.settrace(suspend=True, trace_only_current_thread=True, stop_at_frame=sys._getframe(1))

    def _read(self, stream: IO[bytes]) -> None:
        while header := stream.readline():
            stream.readline()  # the empty line after the only header
            text = stream.read(int(header.split(b":")[1])).decode()
            self._reply(DebugReplied(text))
            message = json.loads(text)
            if message["type"] == "response" and message["request_seq"] == self._awaited:
                self._handled.set()

    def _leave_child(self) -> None:
        """Ends debugging in a process that the user's code forks. A breakpoint would hold it forever."""
        self._pydevd.settrace_forked(setup_tracing=False)  # from now on, `sys.settrace` is Python's own
        sys.settrace(None)
        threading.settrace(None)
        if sys.version_info >= (3, 12):
            module = importlib.import_module("_pydevd_sys_monitoring.pydevd_sys_monitoring")
            module.stop_monitoring(all_threads=True)
        self._socket = None


def _import_pydevd() -> Any:
    """The debugger in debugpy. It isn't imported from `debugpy` itself, which starts a process for its server."""
    hook = sys.breakpointhook
    os.environ[_NO_VALIDATION] = "1"
    try:
        importlib.import_module("debugpy._vendored.force_pydevd")
        return importlib.import_module("pydevd")
    finally:
        del os.environ[_NO_VALIDATION]
        sys.breakpointhook = hook
