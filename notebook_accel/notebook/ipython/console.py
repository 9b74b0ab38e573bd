"""IPython as the console of launches, in a kernel or in a terminal: where their output, displays and prompts go."""

from __future__ import annotations

import contextlib
import contextvars
import ctypes
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TextIO

from IPython.core.displaypub import DisplayPublisher
from IPython.display import publish_display_data

from notebook_accel.events import InputRequested
from notebook_accel.launch.show.console import Terminal, View
from notebook_accel.notebook import views
from notebook_accel.notebook.ipython import tracebacks
from notebook_accel.notebook.ipython.cell_numbers import numbers

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from notebook_accel.launch.job.job import Job


RATE_VARIABLE = "NOTEBOOK_ACCEL_OUTPUT_RATE"
_SERVER_LIMIT = 700_000
"""Bytes a second. Jupyter's server drops output above 1,000,000, including envelopes (`iopub_data_rate_limit`)."""
_BURST_SECONDS = 2.0
_RETRY_SECONDS = 0.1


class IPythonTerminal(Terminal):
    """Shows output as plain lines, and knows the names of cells."""

    preloads_after = None  # but after each cell

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell
        self._numbers = numbers(shell)
        # In a terminal, a display is only printed.
        self.updates_displays = type(shell.display_pub) is not DisplayPublisher

    @property
    def cell(self) -> int | None:  # type: ignore[override]
        return self._shell.execution_count

    def display_name(self, filename: str) -> str:
        """The name of a cell as the user sees it, such as `In[3]`."""
        number = self._numbers.get(filename)
        return filename if number is None else f"In[{number}]"

    def display(
        self, data: Mapping[str, Any], metadata: Mapping[str, Any], display_id: str, *, update: bool = False
    ) -> None:
        transient = {"display_id": display_id}
        publish_display_data(dict(data), dict(metadata), transient=transient, update=update)  # type: ignore[no-untyped-call]

    def shorten_traceback(self, error: BaseException) -> None:
        tracebacks.shorten(error)


class Kernel(IPythonTerminal):
    """Shows output and state below the cell that started the launch."""

    def __init__(self, shell: InteractiveShell) -> None:
        super().__init__(shell)
        self._rate_limit = RateLimit(_output_rate())
        self._router = CellRouter(shell)

    def origin(self) -> str:
        """The notebook's session name if Jupyter's server sets one, otherwise the kernel's connection file.

        A kernel keeps its connection file when it is restarted.
        """
        session = os.environ.get("JPY_SESSION_NAME")
        application = getattr(getattr(self._shell, "kernel", None), "parent", None)
        return session or str(getattr(application, "connection_file", ""))

    def choose_view(self) -> Callable[[Job], View]:
        return views.choose()

    def show(self, job: Job) -> View:
        return views.choose()(job)

    def write(self, stream: str, text: str) -> None:
        self._rate_limit.spend(len(text))
        self._router.write(sys.stderr if stream == "stderr" else sys.stdout, text)

    def display(
        self, data: Mapping[str, Any], metadata: Mapping[str, Any], display_id: str, *, update: bool = False
    ) -> None:
        self._rate_limit.spend(sum(_length(part) for part in data.values()))
        super().display(data, metadata, display_id, update=update)

    def open_prompt(
        self,
        request: InputRequested,
        on_answer: Callable[[str | None], object],
        is_wanted: Callable[[], bool],
    ) -> Callable[[], object]:
        del is_wanted  # this returns before the answer
        self.write("stdout", request.output)
        kernel: Any = self._shell.kernel  # type: ignore[attr-defined]
        if threading.current_thread() is not threading.main_thread() or not kernel._allow_stdin:
            on_answer(None)
            return lambda: None
        read_line = kernel.getpass if request.hidden else kernel.raw_input
        return PendingPrompt(read_line, request.prompt, on_answer).withdraw


class RateLimit:
    """Limits output to a number of bytes a second, after an initial burst: a token bucket."""

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._credit = (rate or 0) * _BURST_SECONDS
        self._at = time.monotonic()

    def spend(self, count: int) -> None:
        """Sleeps until the rate allows `count` more bytes."""
        if self._rate is None:
            return
        now = time.monotonic()
        self._credit = min(self._rate * _BURST_SECONDS, self._credit + (now - self._at) * self._rate) - count
        self._at = now
        if self._credit < 0:
            time.sleep(-self._credit / self._rate)


def _length(part: Any) -> int:
    """The characters of a part of a display, as text or as JSON."""
    return len(part) if isinstance(part, str) else len(json.dumps(part))


def _output_rate() -> float | None:
    """The bytes a second that the front end accepts without loss; `None` if there is no limit."""
    setting = os.environ.get(RATE_VARIABLE)
    if setting is not None:
        return float(setting) or None
    # Set by Jupyter's server for the kernels that it starts; other clients talk to the kernel directly.
    return _SERVER_LIMIT if "JPY_SESSION_NAME" in os.environ else None


_cell: ContextVar[dict[str, Any] | None] = ContextVar("cell", default=None)
"""The header of the request that runs the cell."""


class _Hooks(threading.local):
    """The hooks through which the kernel's publisher passes messages. Each thread has its own."""

    def __init__(self) -> None:
        self.hooks = [_route]


def _route(message: dict[str, Any]) -> dict[str, Any]:
    cell = _cell.get()
    if cell is not None:
        message["parent_header"] = cell
    return message


class CellRouter:
    """Sets the parent of messages to the cell that they belong to."""

    def __init__(self, shell: InteractiveShell) -> None:
        publisher: Any = shell.display_pub
        self._writes = "parent_header" in vars(sys.stdout)
        """Whether writes to the kernel's streams need their parent set too, which is so in ipykernel before 6.25."""
        if not publisher.has_trait("parent_header"):
            return  # newer versions keep the parent in the context
        before = list(publisher._hooks)
        publisher._thread_local = _Hooks()
        publisher._hooks.extend(before)
        self._publisher = publisher
        shell.events.register("pre_run_cell", self._begin)
        self._begin()

    def _begin(self, *_: object) -> None:
        _cell.set(self._publisher.parent_header)

    def write(self, stream: TextIO, text: str) -> None:
        """Writes to a stream of the kernel."""
        cell = _cell.get() if self._writes else None
        if cell is None or threading.current_thread() is threading.main_thread():
            stream.write(text)
            return
        # The stream would buffer the text briefly, and send it below the cell that runs at that time.
        now: Any = stream
        now.flush()
        content = {"name": now.name, "text": text}
        now.session.send(now.pub_thread, "stream", content=content, parent=cell, ident=now.topic)


class PendingPrompt:
    """Prompts the user on a thread, and passes on the answer.

    Args:
        read_line: The kernel's `raw_input` or `getpass`, which runs Python code at least every 10 ms.
        prompt: The prompt.
        on_answer: Called on this thread with the line; `None` if there is no input.
    """

    def __init__(self, read_line: Callable[[str], str], prompt: str, on_answer: Callable[[str | None], object]) -> None:
        cell = contextvars.copy_context()  # the prompt appears in the cell that runs now

        def run() -> None:
            answer = None
            try:
                with contextlib.suppress(EOFError):
                    answer = cell.run(read_line, prompt)
            finally:
                on_answer(answer)

        self._thread = threading.Thread(target=run, name="notebook-accel prompt", daemon=True)
        self._thread.start()

    def withdraw(self) -> None:
        """Ends the wait, and returns once it has ended."""
        while self._thread.is_alive():
            # SystemExit is the exception that a thread may end with silently.
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(self._thread.ident or 0), ctypes.py_object(SystemExit)
            )
            self._thread.join(_RETRY_SECONDS)
