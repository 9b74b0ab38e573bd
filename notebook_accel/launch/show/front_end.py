"""What the launcher asks of the place it runs in. A terminal by default; `notebook_accel.notebook` knows notebooks."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from notebook_accel.launch.wire import cell_names

if TYPE_CHECKING:
    from notebook_accel.launch.job.job import Job


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

    def display(
        self,
        data: Mapping[str, Any],
        metadata: Mapping[str, Any],
        display_id: str | None = None,
        *,
        update: bool = False,
    ) -> None:
        """Shows something rich, given by its types; or updates what was shown under that name."""

    def ask(self, said: str, prompt: str) -> str | None:
        """Shows a text, asks for a line, and waits for it; `None` where that cannot be."""

    def origin(self) -> str:
        """What the user works in, by a name that outlives this process: a notebook. Empty if it has none."""

    def place(self, filename: str) -> str:
        """What the user calls this file: `In[3]`, or its path."""

    def shorten(self, error: BaseException) -> None:
        """Makes an exception that is not of this package show without the frames of the launcher."""


class LateView:
    """Opens a view only once there is more to see than a line can say."""

    def __init__(self, job: Job, open_view: Callable[[Job], View]) -> None:
        self._job = job
        self._open_view = open_view
        self._view: View | None = None

    @classmethod
    def opening(cls, open_view: Callable[[Job], View]) -> Callable[[Job], View]:
        """What begins to show a job so."""
        return lambda job: cls(job, open_view)

    def refresh(self) -> None:
        from notebook_accel.launch.job import progress  # ranks import this module, and show nothing

        if self._view is not None:
            self._view.refresh()
        elif not progress.is_brief(self._job):
            self._view = self._open_view(self._job)

    def finish(self) -> None:
        if self._view is not None:
            self._view.finish()


class Views:
    """Every place where one job is shown. The job's runner refreshes them; any thread may add one.

    One that fails is left out, which is told: no training ends because it can't be drawn.
    """

    def __init__(self, job: Job, open_view: Callable[[Job], View], *others: View) -> None:
        self._job = job
        self._views: list[View] = []
        try:
            self._views.append(open_view(job))
        except Exception as error:
            self._tell(error)
        self._views += others
        job.runner.show = self._add

    def refresh(self) -> None:
        for view in list(self._views):
            self._draw(view, view.refresh)

    def finish(self) -> None:
        for view in list(self._views):
            self._draw(view, view.finish)

    def _draw(self, view: View, draw: Callable[[], None]) -> None:
        try:
            draw()
        except Exception as error:
            self._views.remove(view)
            self._tell(error)

    def _tell(self, error: Exception) -> None:
        place = traceback.extract_tb(error.__traceback__)[-1]
        current.notice(
            f"{self._job.title} can't be shown here any more: {type(error).__name__}: {error} ({place.filename}, line "
            f"{place.lineno}). This does not touch the job: job.show() or attach() tries anew"
        )

    def _add(self) -> None:
        view = current.show(self._job)
        self._views.append(view)
        if self._job.status.ended:  # perhaps after it was drawn
            view.finish()


class NoView:
    """Shows nothing: what the ranks write is all there is to see."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def refresh(self) -> None:
        pass

    def finish(self) -> None:
        pass


class _Notices(NoView):
    """Beside what the ranks write, one line when the job stalls."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self._told: object = None

    def refresh(self) -> None:
        stalled = self._job.stalled
        if stalled is not self._told:
            self._told = stalled
            if stalled is not None:
                from notebook_accel.launch.job.location import explain

                current.notice(f"{self._job.title}: {explain(self._job)}")


class Terminal:
    """Lines on the standard streams; a job is drawn below them where that is a terminal."""

    def choose_view(self) -> Callable[[Job], View]:
        if not can_draw():
            return _Notices
        from notebook_accel.launch.show.terminal import TerminalView

        return TerminalView

    def show(self, job: Job) -> View:
        from notebook_accel.launch.job.describe import describe

        self.write("stdout", describe(job) + "\n")
        return _Notices(job)

    def write(self, stream: str, text: str) -> None:
        out = sys.stderr if stream == "stderr" else sys.stdout
        out.write(text)
        out.flush()

    def notice(self, text: str) -> None:
        self.write("stderr", text + "\n")

    def display(
        self,
        data: Mapping[str, Any],
        metadata: Mapping[str, Any],
        display_id: str | None = None,
        *,
        update: bool = False,
    ) -> None:
        del metadata, display_id, update  # a terminal knows only lines
        self.write("stdout", data.get("text/plain", "") + "\n")

    def ask(self, said: str, prompt: str) -> str | None:
        self.write("stdout", said)
        if not sys.stdin.isatty():
            return None
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401  # lets the line be edited
        try:
            return input(prompt)
        except EOFError:
            return None

    def origin(self) -> str:
        return ""

    def place(self, filename: str) -> str:
        return filename

    def shorten(self, error: BaseException) -> None:
        pass  # a terminal shows what Python shows


def can_draw() -> bool:
    """Whether there is a terminal to draw in, which nobody types into at the same time."""
    return sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb" and not hasattr(sys, "ps1")


current: FrontEnd = Terminal()
"""The front end of this process; set once, by whoever knows better."""

cell_names.register(lambda filename: current.place(filename))


def use(front_end: FrontEnd) -> None:
    """Makes this the front end of the process."""
    global current  # one process has one front end
    current = front_end
