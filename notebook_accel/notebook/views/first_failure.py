"""Notices the first failure of a rank, which a view shows at once rather than at its next redraw."""

from __future__ import annotations

from notebook_accel.events import AttemptStarted, Event, Exited, Failed, Phase
from notebook_accel.launch.job.job import Job


class FirstFailure:
    """The first failure of a rank in each attempt of a job. The failures that it causes can wait."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._has_occurred = False
        self.is_new = False
        """Whether a first failure has not been shown yet."""
        job.listen(self._on_event)

    def mark_shown(self) -> None:
        """Records that the failure is shown."""
        self.is_new = False

    def _on_event(self, rank: int | None, event: Event) -> None:
        if isinstance(event, (Failed, Exited)):
            if not self._has_occurred and rank is not None and self._job.ranks[rank].phase is Phase.FAILED:
                self._has_occurred = self.is_new = True
        elif isinstance(event, AttemptStarted):
            self._has_occurred = self.is_new = False
