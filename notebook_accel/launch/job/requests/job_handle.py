"""The state of a job with the runner that requests go to: the base of the classes that add methods for users."""

from __future__ import annotations

from notebook_accel.events import JobStarted
from notebook_accel.launch.job.job_state import JobState
from notebook_accel.launch.job.requests.runner import Runner


class JobHandle(JobState):
    """The state of a job, and the means to act on it."""

    def __init__(self, start: JobStarted) -> None:
        super().__init__(start)
        self.runner = Runner()
