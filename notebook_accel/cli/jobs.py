"""`notebook-accel jobs`, `job`, `explain`, `wait`, `stop`, `log`, `resume`, `compare`: jobs on this machine's disk."""

from __future__ import annotations

import json
import math
import time
from dataclasses import asdict

import click

from notebook_accel.cli.exit_codes import NOT_REACHED, STALLED, TIMED_OUT
from notebook_accel.config.click_options import WholeNumber
from notebook_accel.launch.driver import attach
from notebook_accel.launch.job import describe, requests, waiting
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.job_state import Status
from notebook_accel.launch.journal import records
from notebook_accel.launch.journal.followed_job import FollowedJob


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


@click.command("job")
@click.argument("job", metavar="JOB")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show_job(job: str, as_json: bool) -> None:
    """Print the state of a job: progress, time left, metrics, and what is wrong.

    JOB is an ID from `notebook-accel jobs`, or enough of its beginning to be unique.
    """
    from notebook_accel.insight.job_facts import facts

    found = attach.find(job)
    click.echo(json.dumps(facts(found), indent=2) if as_json else describe.summary(found))


@click.command()
@click.argument("job", metavar="JOB")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def explain(job: str, as_json: bool) -> None:
    """Say why a job has failed, is stalled, or is slow, with the evidence.

    JOB is an ID from `notebook-accel jobs`, or enough of its beginning to be unique. Lines that begin with a bar were
    written by the code of the job.
    """
    found = attach.find(job).explain()
    click.echo(json.dumps(found.as_json(), indent=2) if as_json else repr(found))


@click.command()
@click.argument("job", metavar="JOB")
@click.option("--until", metavar="CONDITION", help="Wait for a value of a metric, such as 'loss<0.1'.")
@click.option("--timeout", type=click.FloatRange(0), metavar="SECONDS", help="The longest time to wait.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def wait(job: str, until: str | None, timeout: float | None, as_json: bool) -> int:
    """Wait until a job ends, stalls, or reaches a value, and print its state.

    JOB is an ID from `notebook-accel jobs`, or enough of its beginning to be unique. A value is the mean over the ranks
    at the last step that they all have reported, or at a later one.

    The exit code is 0 if the job is done or has reached the value, 1 if it has ended in another way, 3 if it is
    stalled, and 124 if the time is up.
    """
    from notebook_accel.insight.job_facts import wait_facts

    condition = None if until is None else waiting.Condition.parse(until)
    seconds = math.inf if timeout is None else requests.checked_timeout(timeout)
    followed = FollowedJob(records.find(job, ""), show=lambda: None)
    followed.refresh()

    def pause(seconds: float) -> None:
        time.sleep(seconds)
        followed.refresh()

    found = waiting.Wait(followed.job, condition).until(seconds, pause)
    facts = wait_facts(followed.job, found)
    click.echo(json.dumps(facts, indent=2) if as_json else f"{found.text}\n{facts['job']['text']}")
    if found.event == waiting.ENDED:
        return 0 if until is None and followed.job.status is Status.DONE else NOT_REACHED
    return {waiting.REACHED: 0, waiting.STALLED: STALLED, waiting.TIMEOUT: TIMED_OUT}[found.event]


@click.command()
@click.argument("job", metavar="JOB")
def stop(job: str) -> None:
    """Stop a job wherever it runs. A second call kills its ranks.

    JOB is an ID from `notebook-accel jobs`, or enough of its beginning to be unique. Its ranks get a
    KeyboardInterrupt and 5 seconds to end, for example to save.
    """
    found = attach.find(job)
    if found.cancel():
        click.echo(f"job {found.id} was asked to stop: its ranks get a KeyboardInterrupt; a second call kills them")
    else:
        click.echo(f"job {found.id} has ended already: {found.status.value}")


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
    found = compare(one, other)
    if as_json:
        lines = [line._asdict() for line in found.lines]
        click.echo(json.dumps({"verdict": found.verdict, "lines": lines}, indent=2))
    else:
        click.echo(repr(found))
