"""`%accelerate jobs` and `%accelerate attach`, for jobs launched here or elsewhere."""

from __future__ import annotations

import click

from notebook_accel.launch.driver import attach
from notebook_accel.launch.driver.attach import Jobs, JobSummary
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.text import duration, title
from notebook_accel.notebook.ipython.magic_commands import MagicCommand


@click.command("jobs", cls=MagicCommand)
def list_jobs() -> Jobs:
    """Lists the last jobs of all notebooks."""
    return attach.jobs()


def _ids(context: click.Context, param: click.Parameter, start: str) -> list[str]:
    """The IDs of jobs, for the Tab key."""
    del context, param
    return [listed.id for listed in attach.jobs() if listed.id.startswith(start)]


@click.command("attach", cls=MagicCommand)
@click.argument("job", required=False, metavar="[JOB]", shell_complete=_ids)
def attach_job(job: str | None) -> Job:
    """Shows a job again; the last one by default."""
    return attach.attach(job)


def running() -> list[str]:
    """A line for each job that is running, wherever it was launched."""
    return [_line(listed) for listed in attach.jobs() if not listed.status.ended]


def _line(listed: JobSummary) -> str:
    ranks = f"{listed.ranks} rank{'s' if listed.ranks > 1 else ''}"
    return f"{title(listed.name)} runs on {ranks} for {duration(listed.seconds)}: %accelerate attach {listed.id}"
