"""The views of one job while it runs: opened, refreshed, and removed if they fail."""

from __future__ import annotations

import traceback
from collections.abc import Callable

from notebook_accel.launch.job import progress
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.show import console
from notebook_accel.launch.show.console import View
from notebook_accel.launch.show.usage_watch import UsageWatch


class LateView:
    """Opens a view only once there is more to show than fits on one line."""

    def __init__(self, job: Job, open_view: Callable[[Job], View]) -> None:
        self._job = job
        self._open_view = open_view
        self._view: View | None = None

    @classmethod
    def opening(cls, open_view: Callable[[Job], View]) -> Callable[[Job], View]:
        """Wraps a function that opens a view, so that it opens late."""
        return lambda job: cls(job, open_view)

    def refresh(self) -> None:
        if self._view is not None:
            self._view.refresh()
        elif not progress.is_brief(self._job):
            self._view = self._open_view(self._job)

    def finish(self) -> None:
        if self._view is not None:
            self._view.finish()

    @property
    def is_seen(self) -> bool:
        return self._view is not None and self._view.is_seen


class Views:
    """All views of one job. The job's driver refreshes them; any thread may add one.

    The first one is opened by `open`, or by the first refresh. A view that raises is removed, with a notice: a failure
    to draw must not end the training.

    Args:
        job: The job.
        open_view: Opens the first view.
        others: Further views.
        reads_usage: Whether to read what the ranks use while somebody looks.
    """

    def __init__(self, job: Job, open_view: Callable[[Job], View], *others: View, reads_usage: bool = True) -> None:
        self._job = job
        self._usage = UsageWatch(job) if reads_usage else None
        self._open_view: Callable[[Job], View] | None = open_view
        self._views: list[View] = [*others]
        job.runner.show = self._add
        job.runner.shorten_traceback = lambda error: console.current.shorten_traceback(error)

    def open(self) -> None:
        """Opens the first view, if it is not open yet."""
        open_view, self._open_view = self._open_view, None
        if open_view is not None:
            try:
                self._views.append(open_view(self._job))  # last: it may name the job, which is recorded by then
            except Exception as error:
                self._report_failure(error)

    def refresh(self) -> None:
        self.open()
        self._read_usage()
        for view in list(self._views):
            self._draw(view, view.refresh)

    def finish(self) -> None:
        self.open()
        if self._usage is not None:
            self._usage.close()
        for view in list(self._views):
            self._draw(view, view.finish)

    @property
    def is_seen(self) -> bool:
        return any(view.is_seen for view in self._views)

    def _read_usage(self) -> None:
        if self._usage is None:
            return
        try:
            self._usage.refresh(self.is_seen)
        except Exception as error:
            self._usage.close()
            self._usage = None
            console.current.notice(
                f"what the ranks of {self._job.title} use can't be read: {type(error).__name__}: {error}"
            )

    def _draw(self, view: View, draw: Callable[[], None]) -> None:
        try:
            draw()
        except Exception as error:
            self._views.remove(view)
            self._report_failure(error)

    def _report_failure(self, error: Exception) -> None:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        console.current.notice(
            f"{self._job.title} can no longer be shown here: {type(error).__name__}: {error} ({frame.filename}, line "
            f"{frame.lineno}). The job is not affected: job.show() or attach() tries again"
        )

    def _add(self) -> None:
        view = console.current.show(self._job)
        self._views.append(view)
        if self._job.status.ended:  # maybe since the view was opened
            view.finish()
