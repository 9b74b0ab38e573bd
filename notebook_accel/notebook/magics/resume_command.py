"""`%accelerate resume`: continues a paused training run, or one that has ended, from disk, with its function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from notebook_accel.errors import CheckpointError, ConfigurationError, JobLostError
from notebook_accel.launch.driver import relaunch, stored_code
from notebook_accel.launch.driver.relaunch import Checkpointed
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.text import title
from notebook_accel.launch.journal import saved_launch
from notebook_accel.launch.journal.saved_launch import SavedLaunch
from notebook_accel.launch.show import console
from notebook_accel.notebook.ipython.magic_commands import MagicCommand, say
from notebook_accel.notebook.magics.job_commands import running_job
from notebook_accel.train.checkpoints import folders, manifest
from notebook_accel.train.checkpoints.remote_path import parse

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


def _ids(context: click.Context, param: click.Parameter, start: str) -> list[str]:
    """The IDs of jobs, for the Tab key."""
    del context, param
    return [found for found in relaunch.unfinished_ids() if found.startswith(start)]


@click.command("resume", cls=MagicCommand)
@click.argument("job", required=False, metavar="[JOB]", shell_complete=_ids)
@click.option("--saved-code", is_flag=True, help="Runs the functions and classes as they were at the launch.")
@click.option("--current-code", is_flag=True, help="Runs the notebook's function, with the arguments of the launch.")
@click.pass_obj
def resume(shell: InteractiveShell, job: str | None, saved_code: bool, current_code: bool) -> Any:
    """Continues a job that is paused, or that saved checkpoints and ended unfinished; by default, the last one here."""
    paused = None if saved_code or current_code else _paused(shell, job)
    if paused is not None:
        step = paused.resume()
        say(f"{paused.title} continues after step {step}")
        return None
    return continue_job(job, saved_code=saved_code, current_code=current_code)


def _paused(shell: InteractiveShell, job: str | None) -> Job | None:
    """The job, if it is paused."""
    try:
        found = running_job(shell, job)
    except (ConfigurationError, JobLostError):  # which `continue_job` explains
        return None
    return found if found.is_paused and not found.status.ended else None


def continue_job(job: str | None, *, saved_code: bool = False, current_code: bool = False) -> Any:
    """Launches a job again, as the magic does.

    Args:
        job: Its ID, or the beginning of it; `None` for the last one of this notebook that can be resumed.
        saved_code: Whether to run its definitions as they were launched.
        current_code: Whether to run those of the notebook.

    Returns:
        As `notebook_launcher`.

    Raises:
        ConfigurationError: There is no such job, it can't be resumed here, or it must be chosen which code is run.
        JobLostError: Its function is not stored, or can't be read.
        NotebookAccelError: As `notebook_launcher`.
    """
    if saved_code and current_code:
        raise ConfigurationError("%accelerate resume: --saved-code contradicts --current-code: leave one of them out")
    found = relaunch.find(job, console.current.origin())
    saved = _read(found)
    relaunch.check(saved, current_code=current_code)
    if not (saved_code or current_code):
        _refuse_changes(saved)
    console.current.notice(f"{found}: {_where(saved)}")
    return relaunch.start(saved, current_code=current_code)


def _read(found: Checkpointed) -> SavedLaunch:
    try:
        return saved_launch.read(found.record)
    except JobLostError as error:
        raise JobLostError(
            f"{found} can't be launched again: {error}. The same launch with checkpoint={found.folder!r} also "
            "continues from its checkpoints"
        ) from None


def _refuse_changes(saved: SavedLaunch) -> None:
    changes = stored_code.changes(saved.definitions)
    if not changes:
        return
    say(changes)
    raise ConfigurationError(
        f"the notebook's code has changed since {title(saved.name)} was launched, as shown above. %accelerate resume "
        "--saved-code continues with the code of the launch, and --current-code with the notebook's"
    )


def _where(saved: SavedLaunch) -> str:
    """Where training continues, by the newest manifest. The ranks compare the checksums of the files."""
    folder = parse(saved.checkpoint_dir)
    for _, path in reversed(folders.numbered(folder)):
        try:
            place = manifest.place(path)
        except CheckpointError:
            continue
        return f"continues from {path}, in epoch {place.epoch}, after {place.step} steps"
    return f"starts from the beginning, because {folder} has no valid checkpoint yet"
