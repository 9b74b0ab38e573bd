"""`%accelerate jobs` and `%accelerate attach`, for jobs launched here or elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from notebook_accel.errors import ConfigurationError
from notebook_accel.launch.driver import attach
from notebook_accel.launch.driver.attach import Jobs, JobSummary
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.text import duration, title

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


def list_jobs(shell: InteractiveShell, words: list[str]) -> Jobs:
    """Lists the last jobs."""
    del shell
    _refuse(words, "jobs")
    return attach.jobs()


def attach_job(shell: InteractiveShell, words: list[str]) -> Job:
    """Shows a job again."""
    del shell
    _refuse(words[1:], f"attach {' '.join(words[:1])}")
    return attach.attach(words[0] if words else None)


def complete(shell: InteractiveShell, words: list[str], prefix: str) -> list[str]:
    """Completes the IDs of jobs."""
    del shell, prefix
    return [] if words else [listed.id for listed in attach.jobs()]


def running() -> list[str]:
    """A line for each job that is running, wherever it was launched."""
    return [_line(listed) for listed in attach.jobs() if not listed.status.ended]


def _line(listed: JobSummary) -> str:
    ranks = f"{listed.ranks} rank{'s' if listed.ranks > 1 else ''}"
    return f"{title(listed.name)} runs on {ranks} for {duration(listed.seconds)}: %accelerate attach {listed.id}"


def _refuse(words: list[str], called: str) -> None:
    if words:
        raise ConfigurationError(f"%accelerate {called} takes no further arguments, but got {words[0]!r}")
