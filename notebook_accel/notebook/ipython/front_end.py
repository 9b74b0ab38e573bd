"""IPython as the front end of launches, in a Jupyter kernel or in a terminal."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from IPython.core.displaypub import DisplayPublisher
from IPython.display import publish_display_data

from notebook_accel.events import InputRequested
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.show.front_end import Terminal, View
from notebook_accel.notebook import views
from notebook_accel.notebook.ipython import tracebacks
from notebook_accel.notebook.ipython.cell_location import CellRouter
from notebook_accel.notebook.ipython.cell_numbers import numbers
from notebook_accel.notebook.ipython.prompt_thread import PromptThread

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

RATE_VARIABLE = "NOTEBOOK_ACCEL_OUTPUT_RATE"
_SERVER_LIMIT = 700_000
"""Bytes a second. Jupyter's server drops output above 1,000,000, including envelopes (`iopub_data_rate_limit`)."""
_BURST_SECONDS = 2.0


class IPythonTerminal(Terminal):
    """Shows output as plain lines, and knows the names of cells."""

    preloads_after = None  # but after each cell

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell
        self._numbers = numbers(shell)
        # In a terminal, a display is only printed.
        self.updates_displays = type(shell.display_pub) is not DisplayPublisher

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

    def open_prompt(self, request: InputRequested, on_answer: Callable[[str | None], object]) -> Callable[[], object]:
        self.write("stdout", request.output)
        kernel: Any = self._shell.kernel  # type: ignore[attr-defined]
        if threading.current_thread() is not threading.main_thread() or not kernel._allow_stdin:
            on_answer(None)
            return lambda: None
        read_line = kernel.getpass if request.hidden else kernel.raw_input
        thread = PromptThread(read_line, request.prompt, on_answer)
        thread.start()
        return thread.withdraw


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
