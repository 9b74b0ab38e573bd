"""`%accelerate pause`, `checkpoint`, `end-after-epoch` and `tune`, for jobs that run here or elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from notebook_accel.errors import ConfigurationError
from notebook_accel.launch.show import front_end
from notebook_accel.notebook.ipython.magic_commands import MagicCommand
from notebook_accel.notebook.magics.job_commands import complete_id, job_argument, running_job

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


@click.command("pause", cls=MagicCommand)
@job_argument
@click.pass_obj
def pause(shell: InteractiveShell, job: str | None) -> None:
    """Pauses training between two steps; by default, in the cell that runs on the ranks, or in the last job."""
    found = running_job(shell, job)
    _write(f"{found.title} is paused after step {found.pause()}; %accelerate resume continues it")


@click.command("checkpoint", cls=MagicCommand)
@job_argument
@click.pass_obj
def checkpoint(shell: InteractiveShell, job: str | None) -> None:
    """Saves a checkpoint of a running job; by default, of the cell that runs on the ranks, or of the last job."""
    found = running_job(shell, job)
    _write(f"{found.title} has saved {found.checkpoint()}")


@click.command("end-after-epoch", cls=MagicCommand)
@job_argument
@click.pass_obj
def end_after_epoch(shell: InteractiveShell, job: str | None) -> None:
    """Ends training after the current epoch; by default, in the cell on the ranks, or in the last job."""
    found = running_job(shell, job)
    _write(f"{found.title} ends after {found.end_after_epoch()}")


@click.command("tune", cls=MagicCommand)
@click.argument("values", nargs=-1, required=True, metavar="NAME=VALUE...")
@click.option("--job", metavar="JOB", shell_complete=complete_id, help="The job; see above for the default.")
@click.pass_obj
def tune(shell: InteractiveShell, values: tuple[str, ...], job: str | None) -> None:
    """Changes tunable values, as in `tune lr=0.01`; by default, of the cell that runs on the ranks, or the last job."""
    found = running_job(shell, job)
    step = found.tune(**dict(map(_parse, values)))
    _write(f"{found.title} has {' '.join(values)} after step {step}")


def _parse(text: str) -> tuple[str, float]:
    name, _, value = text.partition("=")
    try:
        number = float(value)
    except ValueError:
        raise ConfigurationError(f"%accelerate tune takes numbers by name, as in lr=0.01, and not {text!r}") from None
    return name, int(number) if number.is_integer() and "e" not in value.lower() else number


def _write(text: str) -> None:
    front_end.current.write("stdout", text + "\n")
