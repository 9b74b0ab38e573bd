"""`notebook-accel jobs`, `log`, `resume`, and `compare`: the jobs on this machine's disk, without a notebook."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from notebook_accel.config.click_options import WholeNumber
from notebook_accel.launch.driver import attach
from notebook_accel.launch.job.job import Job


@click.command("jobs")
@click.option("--last", type=WholeNumber(1), default=20, show_default=True, metavar="N", help="At most N jobs.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_jobs(last: int, as_json: bool) -> None:
    """List the last jobs of all notebooks, newest first."""
    found = attach.jobs(last)
    if as_json:
        click.echo(json.dumps([{**asdict(each), "status": each.status.value} for each in found], indent=2))
    else:
        click.echo(repr(found))


@click.command()
@click.argument("job", metavar="JOB")
@click.option("--rank", type=WholeNumber(0), metavar="RANK", help="Only this rank's lines, without labels.")
@click.option("--last", type=WholeNumber(1), default=1000, show_default=True, metavar="N", help="The last N lines.")
@click.option("--all", "all_lines", is_flag=True, help="All lines that were recorded.")
def log(job: str, rank: int | None, last: int, all_lines: bool) -> None:
    """Print what the ranks of a job have written, also while it runs.

    JOB is an ID from `notebook-accel jobs`, or enough of its beginning to be unique.
    """
    click.echo(attach.find(job).log(rank, None if all_lines else last), nl=False)


@click.command()
@click.argument("job", metavar="JOB")
def resume(job: str) -> None:
    """Continue a job of a notebook or a script from its checkpoints, as it was launched.

    JOB is an ID from `notebook-accel jobs`, or enough of its beginning to be unique. The job must have been launched
    with `checkpoint=` or `--checkpoint_dir`, and have ended unfinished. A detached job continues in the background;
    others end with this command.
    """
    from notebook_accel.notebook.magics import resume_command

    launched = resume_command.continue_job(job)
    if isinstance(launched, Job) and not launched.elsewhere:
        launched.result()


@click.command("compare")
@click.argument("first", metavar="FIRST")
@click.argument("second", metavar="SECOND")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def compare_jobs(first: str, second: str, as_json: bool) -> None:
    """Compare two jobs: throughput, parts of a step, memory, and the values that they reported.

    FIRST and SECOND are IDs from `notebook-accel jobs`, or enough of their beginnings to be unique. SECOND is compared
    with FIRST, so give the older one or the one with fewer ranks first.
    """
    from notebook_accel.insight.comparison import compare

    one, other = attach.find(first), attach.find(second)
    if one.id == other.id:
        raise click.UsageError(f"both names refer to job {one.id}: give two different jobs")
    found = compare(one, other)
    if as_json:
        lines = [line._asdict() for line in found.lines]
        click.echo(json.dumps({"verdict": found.verdict, "lines": lines}, indent=2))
    else:
        click.echo(repr(found))
