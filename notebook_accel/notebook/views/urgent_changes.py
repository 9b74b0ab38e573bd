"""Notices what a view shows at once rather than at its next redraw: the first failure, and requests for input."""

from __future__ import annotations

from notebook_accel.events import AttemptStarted, Event, Exited, Failed, InputRequested, Phase
from notebook_accel.launch.job.job import Job


class UrgentChanges:
    """Requests for input, and the first failure in each attempt of a job. The failures that it causes can wait."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._has_failed = False
        self.any = False
        """Whether there is a change that has not been shown yet."""
        job.listen(self._on_event)

    def mark_shown(self) -> None:
        """Records that they are shown."""
        self.any = False

    def _on_event(self, rank: int | None, event: Event) -> None:
        if isinstance(event, (Failed, Exited)):
            if not self._has_failed and rank is not None and self._job.ranks[rank].phase is Phase.FAILED:
                self._has_failed = self.any = True
        elif isinstance(event, InputRequested):
            self.any = True
        elif isinstance(event, AttemptStarted):
            self._has_failed = self.any = False
