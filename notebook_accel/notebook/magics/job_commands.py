"""The subcommands of `%accelerate` for jobs launched here or elsewhere: their list, and what to do to one that runs."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import click

from notebook_accel.errors import ConfigurationError
from notebook_accel.launch.driver import attach
from notebook_accel.launch.driver.attach import Jobs
from notebook_accel.launch.job import rules
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.text import duration
from notebook_accel.launch.journal import records
from notebook_accel.launch.journal.job_summary import JobSummary
from notebook_accel.notebook.cells import session as sessions
from notebook_accel.notebook.ipython.magic_commands import MagicCommand, say
from notebook_accel.rank_spans import counted

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


_MOST_COMPLETIONS = 20


@click.command("jobs", cls=MagicCommand)
@click.option("--last", type=int, default=20, metavar="N", help="How many jobs to list, at most; 20 by default.")
def list_jobs(last: int) -> Jobs:
    """Lists the last jobs of all notebooks."""
    return attach.jobs(last)


def complete_id(context: click.Context, param: click.Parameter, start: str) -> list[str]:
    """The IDs of jobs, for the Tab key."""
    del context, param
    every = (record.id for record in reversed(records.all_records()))
    return list(itertools.islice((each for each in every if each.startswith(start)), _MOST_COMPLETIONS))


job_argument = click.argument("job", required=False, metavar="[JOB]", shell_complete=complete_id)
"""The job that a subcommand is about."""


@click.command("attach", cls=MagicCommand)
@job_argument
def attach_job(job: str | None) -> Job:
    """Shows a job again; the last one by default."""
    return attach.attach(job)


@click.command("flamegraph", cls=MagicCommand)
@job_argument
@click.option("--seconds", type=float, default=5.0, help="How long to sample; 5 by default.")
@click.option("--rank", type=int, help="The only rank to sample; all by default.")
@click.option("--save", metavar="FILE", help="Also writes a file: .json for speedscope, or .html.")
@click.pass_obj
def flamegraph(shell: InteractiveShell, job: str | None, seconds: float, rank: int | None, save: str | None) -> Any:
    """Shows where a running job spends its time; by default, the cell that runs on the ranks, or the last job."""
    sampled = running_job(shell, job).flamegraph(seconds, rank)
    if save is not None:
        sampled.save(save)
    return sampled


@click.command("profile", cls=MagicCommand)
@job_argument
@click.option("--steps", type=int, default=5, help="How many training steps to profile; 5 by default.")
@click.option("--rank", type=int, help="The only rank to profile; all by default.")
@click.option("--timeout", type=float, default=60.0, help="Seconds within which the steps have to end; 60 by default.")
@click.option("--save", metavar="FOLDER", help="Also writes the traces to a folder.")
@click.pass_obj
def profile(
    shell: InteractiveShell, job: str | None, steps: int, rank: int | None, timeout: float, save: str | None
) -> Any:
    """Profiles the next steps of a running job; by default, the cell that runs on the ranks, or the last job."""
    profiled = running_job(shell, job).profile(steps, rank, timeout=timeout)
    if save is not None:
        profiled.save(save)
    return profiled


def running_job(shell: InteractiveShell, job: str | None) -> Job:
    """A job by its ID; without one, that of the cell that runs on the ranks, otherwise the last job."""
    ranks = sessions.current(shell).ranks
    cell = None if ranks is None or job is not None else ranks.running
    return cell or attach.find(job)


def running() -> list[str]:
    """A line for each job that is running, wherever it was launched."""
    return [_line(listed) for listed in attach.jobs() if not listed.status.ended]


def _line(listed: JobSummary) -> str:
    return (
        f"{listed.title} runs on {counted(listed.ranks)} for {duration(listed.seconds)}: %accelerate attach {listed.id}"
    )


@click.command("pause", cls=MagicCommand)
@job_argument
@click.pass_obj
def pause(shell: InteractiveShell, job: str | None) -> None:
    """Pauses training between two steps; by default, in the cell that runs on the ranks, or in the last job."""
    found = running_job(shell, job)
    say(f"{found.title} is paused after step {found.pause()}; %accelerate resume continues it")


@click.command("checkpoint", cls=MagicCommand)
@job_argument
@click.pass_obj
def checkpoint(shell: InteractiveShell, job: str | None) -> None:
    """Saves a checkpoint of a running job; by default, of the cell that runs on the ranks, or of the last job."""
    found = running_job(shell, job)
    say(f"{found.title} has saved {found.checkpoint()}")


@click.command("end-after-epoch", cls=MagicCommand)
@job_argument
@click.pass_obj
def end_after_epoch(shell: InteractiveShell, job: str | None) -> None:
    """Ends training after the current epoch; by default, in the cell on the ranks, or in the last job."""
    found = running_job(shell, job)
    say(f"{found.title} ends after {found.end_after_epoch()}")


@click.command("tune", cls=MagicCommand)
@click.argument("values", nargs=-1, required=True, metavar="NAME=VALUE...")
@click.option("--job", metavar="JOB", shell_complete=complete_id, help="The job; see above for the default.")
@click.pass_obj
def tune(shell: InteractiveShell, values: tuple[str, ...], job: str | None) -> None:
    """Changes tunable values, as in `tune lr=0.01`; by default, of the cell that runs on the ranks, or the last job."""
    found = running_job(shell, job)
    step = found.tune(**dict(map(_parse, values)))
    say(f"{found.title} has {' '.join(values)} after step {step}")


@click.command("rule", cls=MagicCommand)
@click.argument("metric", required=False, metavar="[METRIC]")
@click.option("--nan", "is_nan", is_flag=True, help="A rank's value is NaN.")
@click.option("--above", type=float, metavar="VALUE", help="The metric is greater than this.")
@click.option("--below", type=float, metavar="VALUE", help="The metric is less than this.")
@click.option("--for-steps", type=int, default=1, metavar="N", help="For how many steps in a row; 1 by default.")
@click.option("--patience", type=int, metavar="N", help="How many reports in a row bring no improvement.")
@click.option("--min-delta", type=float, default=0.0, metavar="VALUE", help="The least improvement that counts.")
@click.option("--mode", default="auto", metavar="min|max|auto", help="Whether lower or higher values are better.")
@click.option("--baseline", type=float, metavar="VALUE", help="The value that improvements have to pass.")
@click.option("--do", default="notify", metavar="ACTION", help="notify, pause, checkpoint, end-after-epoch, or stop.")
@click.option("--remove", type=int, metavar="NUMBER", help="Removes a rule.")
@click.option("--job", metavar="JOB", shell_complete=complete_id, help="The job; see above for the default.")
@click.pass_obj
def rule(
    shell: InteractiveShell, /, metric: str | None, remove: int | None, job: str | None, do: str, **conditions: Any
) -> None:
    """Adds a rule, as in `rule loss --nan --do pause`, or lists the rules of the cell on the ranks, or the last job."""
    found = running_job(shell, job)
    if metric is not None and remove is None:
        number = found.add_rule(rules.when(metric, do=do, **conditions))
        say(f"{found.title} has rule {number}: {found.rules.get(number, '')}")
    elif metric is None and remove is not None:
        found.remove_rule(remove)
        say(f"{found.title} no longer has rule {remove}")
    elif metric is None:
        say("\n".join(rules.describe_rules(found)) or f"{found.title} has no rules")
    else:
        raise ConfigurationError("%accelerate rule adds a rule or removes one: give a metric, or --remove")


def _parse(text: str) -> tuple[str, float]:
    name, _, value = text.partition("=")
    try:
        number = float(value)
    except ValueError:
        raise ConfigurationError(f"%accelerate tune takes numbers by name, as in lr=0.01, and not {text!r}") from None
    return name, int(number) if number.is_integer() and "e" not in value.lower() else number
