"""The console of this process: a terminal or a notebook, in which the driver shows jobs and takes input.

`Terminal` is the default; `notebook_accel.notebook.ipython.console` implements the protocol for notebooks.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import types
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

from notebook_accel.events import Notice
from notebook_accel.launch.system.own_process import raise_on_sigint
from notebook_accel.launch.wire import cell_names

if TYPE_CHECKING:
    from notebook_accel.events import InputRequested
    from notebook_accel.launch.job.job import Job


_LOOK_INTERVAL = 0.1
"""Seconds between two looks at whether a prompt is still of use."""


class View(Protocol):
    """Shows one job while it runs."""

    def refresh(self) -> None:
        """Draws the job as it is now. Called several times a second, by one thread at a time."""

    def finish(self) -> None:
        """Draws the job for the last time."""

    @property
    def is_seen(self) -> bool:
        """Whether somebody may see the ranks there now, so that reading what they use is worthwhile."""


class Console(Protocol):
    """Shows jobs to the user and takes input, in a terminal or a notebook."""

    def choose_view(self) -> Callable[[Job], View]:
        """Returns the function that opens a job's view, below the cell that runs then, and shows the job's notice.

        Raises:
            ConfigurationError: NOTEBOOK_ACCEL_VIEW names a view that does not exist.
        """

    def show(self, job: Job) -> View:
        """Shows a job below the current cell, as it is now; the view may continue to update it."""

    def write(self, stream: str, text: str) -> None:
        """Shows whole lines of output on `stdout` or `stderr`. May block while the console can't keep up."""

    def notice(self, text: str) -> None:
        """Shows a line from notebook-accel itself."""

    @property
    def updates_displays(self) -> bool:
        """Whether `display` works, and can change what it has shown."""

    @property
    def cell(self) -> int | None:
        """The number of the cell that runs; `None` where there are none."""

    def display(
        self, data: Mapping[str, Any], metadata: Mapping[str, Any], display_id: str, *, update: bool = False
    ) -> None:
        """Shows rich output, a MIME bundle; or updates the output that has this display id."""

    def request_input(self, request: InputRequested) -> str | None:
        """Prompts the user, and waits for a line of input; `None` where there is no input."""

    def open_prompt(
        self,
        request: InputRequested,
        on_answer: Callable[[str | None], object],
        is_wanted: Callable[[], bool],
    ) -> Callable[[], object]:
        """Prompts the user, and has `on_answer` called with a line of input; `None` where there is no input.

        A terminal calls it before this returns; a notebook calls it later, on a thread of its own.

        Args:
            request: What to show.
            on_answer: Takes the line.
            is_wanted: Called several times a second by a console that returns only with the answer: continues the
                call, and returns whether the answer is still waited for.

        Returns:
            Withdraws the prompt: once this has returned, `on_answer` is no longer called.

        Raises:
            KeyboardInterrupt: The user has interrupted the wait.
        """

    @property
    def preloads_after(self) -> int | None:
        """The number of launches after which ranks start with the packages that this process has imported.

        `None` in a console that sees to this itself, as after each cell.
        """

    def origin(self) -> str:
        """The notebook that the user works in, by a name that outlives this process; empty without one."""

    def display_name(self, filename: str) -> str:
        """The name of a file as the user knows it: `In[3]` for a cell, otherwise its path."""

    def shorten_traceback(self, error: BaseException) -> None:
        """Makes an exception show without the frames of this package."""


class NoView:
    """Shows nothing beside the ranks' output."""

    is_seen = False

    def __init__(self, job: Job) -> None:
        self._job = job

    def refresh(self) -> None:
        pass

    def finish(self) -> None:
        pass


class StallNotices(NoView):
    """Shows a notice when the job stalls, beside the ranks' output."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self._reported: object = None

    def refresh(self) -> None:
        stalled = self._job.stalled
        if stalled is not self._reported:
            self._reported = stalled
            if stalled is not None:
                from notebook_accel.launch.job.location import explain

                _current().notice(f"{self._job.title}: {explain(self._job)}")


class Terminal:
    """Writes lines to the standard streams; draws jobs below them where those are a terminal."""

    updates_displays = False
    cell: int | None = None
    preloads_after: int | None = 2
    """What ranks import themselves costs each launch a second or two; to import it for them takes as long, on another
    core, and is of no use to a script that launches once."""

    def choose_view(self) -> Callable[[Job], View]:
        if not can_draw():
            return _with_notice(StallNotices)
        from notebook_accel.launch.show.terminal import TerminalView

        return _with_notice(TerminalView)

    def show(self, job: Job) -> View:
        from notebook_accel.launch.job.describe import describe

        self.write("stdout", describe(job) + "\n")
        return StallNotices(job)

    def write(self, stream: str, text: str) -> None:
        out = sys.stderr if stream == "stderr" else sys.stdout
        encoding = getattr(out, "encoding", None) or "utf-8"
        # Ranks write UTF-8 wherever they run; what this stream cannot encode must not end the launch.
        out.write(text.encode(encoding, "backslashreplace").decode(encoding))
        out.flush()

    def notice(self, text: str) -> None:
        with contextlib.suppress(Exception):  # the user has closed or replaced the stream, which must end no job
            self.write("stderr", text + "\n")

    def display(
        self, data: Mapping[str, Any], metadata: Mapping[str, Any], display_id: str, *, update: bool = False
    ) -> None:
        raise NotImplementedError  # a terminal knows only lines

    def open_prompt(
        self,
        request: InputRequested,
        on_answer: Callable[[str | None], object],
        is_wanted: Callable[[], bool],
    ) -> Callable[[], object]:
        drawn = sys.modules.get("notebook_accel.launch.show.terminal")
        answer = None
        with raise_on_sigint(), contextlib.nullcontext() if drawn is None else drawn.held():
            try:
                with _raising_unless(is_wanted):
                    answer = self.request_input(request)
            except _NotWantedError:
                self.write("stdout", "\n")  # what follows doesn't belong to the prompt
        on_answer(answer)
        return lambda: None

    def request_input(self, request: InputRequested) -> str | None:
        self.write("stdout", request.output)
        if not sys.stdin.isatty():
            return None
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401  # lets the line be edited
        try:
            return read_line(request)
        except EOFError:
            return None

    def origin(self) -> str:
        return ""

    def display_name(self, filename: str) -> str:
        return filename

    def shorten_traceback(self, error: BaseException) -> None:
        pass  # a terminal shows what Python shows


class Unseen(Terminal):
    """Shows nothing of a launch. Notices become a part of its job, which may be shown later.

    Args:
        behind: The console that knows the notebook's names.
    """

    def __init__(self, behind: Console) -> None:
        self._behind = behind
        self._job: Job | None = None
        self._early: list[str] = []
        """What was said before there was a job."""

    @property
    def preloads_after(self) -> int | None:  # type: ignore[override]
        return self._behind.preloads_after

    def choose_view(self) -> Callable[[Job], View]:
        return self._open

    def _open(self, job: Job) -> View:
        self._job = job
        early, self._early = self._early, []
        for text in early:
            self.notice(text)
        return NoView(job)

    def show(self, job: Job) -> View:
        return NoView(job)

    def write(self, stream: str, text: str) -> None:
        pass  # the journal has each line

    def notice(self, text: str) -> None:
        if self._job is None:
            self._early.append(text)
        else:
            self._job.apply(None, Notice(text))

    def request_input(self, request: InputRequested) -> str | None:
        return None

    def origin(self) -> str:
        return self._behind.origin()

    def display_name(self, filename: str) -> str:
        return self._behind.display_name(filename)

    def shorten_traceback(self, error: BaseException) -> None:
        self._behind.shorten_traceback(error)


class _NotWantedError(Exception):
    """The answer to a prompt is no longer waited for."""


@contextlib.contextmanager
def _raising_unless(is_wanted: Callable[[], bool]) -> Iterator[None]:
    """Interrupts the body, a wait for the terminal, once the answer is no longer wanted.

    A timer calls the function time and again, since readline overlooks a signal that arrives just before it waits for a
    key. Off the main thread, where Python delivers no signal, the body is not interrupted.

    Raises:
        _NotWantedError: It is not wanted.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def look(*_: object) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # an interrupt would leave a message half read
        try:
            wanted = is_wanted()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        if not wanted:
            signal.setitimer(signal.ITIMER_REAL, 0)  # once is enough
            raise _NotWantedError

    before = signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, _LOOK_INTERVAL, _LOOK_INTERVAL)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _with_notice(open_view: Callable[[Job], View]) -> Callable[[Job], View]:
    """Has the job's notice shown before its view is opened."""

    def open_with_notice(job: Job) -> View:
        if job.notice:
            _current().notice(job.notice)
        return open_view(job)

    return open_with_notice


def can_draw() -> bool:
    """Whether stderr is a terminal to draw in, outside of an interactive Python prompt."""
    return sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb" and not hasattr(sys, "ps1")


if TYPE_CHECKING:
    current: Console
    """The console of this process, or the one that is used in this context."""

_of_process: Console = Terminal()
_of_context: ContextVar[Console | None] = ContextVar("console", default=None)


def _current() -> Console:
    return _of_context.get() or _of_process


class _Module(types.ModuleType):
    """This module, whose `current` depends on the context."""

    @property
    def current(self) -> Console:
        return _current()

    @current.setter
    def current(self, console: Console) -> None:
        use(console)


sys.modules[__name__].__class__ = _Module
cell_names.register(lambda filename: _current().display_name(filename))


def use(console: Console) -> None:
    """Makes this the console of the process."""
    global _of_process  # one process has one console
    _of_process = console


@contextlib.contextmanager
def using(console: Console) -> Iterator[None]:
    """Makes this the console of what the body does, and of what the threads do that it starts."""
    token = _of_context.set(console)
    try:
        yield
    finally:
        _of_context.reset(token)


def noticing_elsewhere() -> Callable[[str], None]:
    """Returns a function that shows a notice below the cell that runs then, unless that is the one that runs now."""
    cell = _current().cell

    def notice(text: str) -> None:
        if _current().cell != cell:
            _current().notice(text)

    return notice


def interrupted(text: str) -> KeyboardInterrupt:
    """An interrupt with this text, which shows without the frames of this package."""
    error = KeyboardInterrupt(text)
    _current().shorten_traceback(error)
    return error


def read_line(request: InputRequested) -> str:
    """Prompts for a line with Python's own functions.

    Raises:
        EOFError: There is no input.
    """
    if not request.hidden:
        return input(request.prompt)
    import getpass

    return getpass.getpass(request.prompt)
