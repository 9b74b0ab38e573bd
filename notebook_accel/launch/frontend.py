"""What the launcher asks of the place it runs in. A terminal by default; `notebook_accel.notebook` knows notebooks."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from notebook_accel.launch.job import Job


class View(Protocol):
    """Shows one job while it runs."""

    def refresh(self) -> None:
        """Draws the job as it is now. Called several times a second, by one thread at a time."""

    def finish(self) -> None:
        """Draws the job for the last time."""


class FrontEnd(Protocol):
    """Where the user is."""

    def choose_view(self) -> Callable[[Job], View]:
        """What begins to show a job, below the cell that runs then.

        Raises:
            ConfigurationError: A view was asked for that there is none of.
        """

    def show(self, job: Job) -> View:
        """Shows a job below the cell that runs now, as it is now; the view may show what becomes of it."""

    def write(self, stream: str, text: str) -> None:
        """Shows whole lines of output; `stream` is `stdout` or `stderr`. May block to keep to the front end's pace."""

    def notice(self, text: str) -> None:
        """Shows one line that is ours."""

    def place(self, filename: str) -> str:
        """What the user calls this file: `In[3]`, or its path."""

    def shorten(self, error: BaseException) -> None:
        """Makes an exception that is not of this package show without the frames of the launcher."""


class Views:
    """Every place where one job is shown. The job's runner refreshes them; any thread may add one."""

    def __init__(self, job: Job, open_view: Callable[[Job], View]) -> None:
        self._job = job
        self._views = [open_view(job)]
        job.on_show(self._add)

    def refresh(self) -> None:
        for view in list(self._views):
            view.refresh()

    def finish(self) -> None:
        for view in list(self._views):
            view.finish()

    def _add(self) -> None:
        view = current.show(self._job)
        self._views.append(view)
        if self._job.status.ended:  # perhaps after it was drawn
            view.finish()


class _NoView:
    def __init__(self, job: Job) -> None:
        del job  # its output lines are all there is to see

    def refresh(self) -> None:
        pass

    def finish(self) -> None:
        pass


class Terminal:
    """Plain lines on the standard streams."""

    def choose_view(self) -> Callable[[Job], View]:
        return _NoView

    def show(self, job: Job) -> View:
        from notebook_accel.launch.describe import describe

        self.write("stdout", describe(job) + "\n")
        return _NoView(job)

    def write(self, stream: str, text: str) -> None:
        out = sys.stderr if stream == "stderr" else sys.stdout
        out.write(text)
        out.flush()

    def notice(self, text: str) -> None:
        self.write("stderr", text + "\n")

    def place(self, filename: str) -> str:
        return filename

    def shorten(self, error: BaseException) -> None:
        pass  # a terminal shows what Python shows


current: FrontEnd = Terminal()
"""The front end of this process; set once, by whoever knows better."""


def use(front_end: FrontEnd) -> None:
    """Makes this the front end of the process."""
    global current  # one process has one front end
    current = front_end
