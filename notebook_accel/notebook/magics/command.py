"""The click command of `%accelerate`: its options, which the rows of the settings make, and its subcommands."""

from __future__ import annotations

from typing import Any

import click

from notebook_accel.config import click_options, kinds
from notebook_accel.config.settings import SETTINGS
from notebook_accel.errors import ConfigurationError
from notebook_accel.notebook.ipython.magic_commands import MagicCommand, MagicGroup
from notebook_accel.notebook.magics import configure, job_commands, rank_commands, resume_command, status

_OPTIONS: list[click.Parameter] = [
    click_options.option(
        [*row.magic, row.field],
        row.kind,
        row.help,
        flag=row.kind is kinds.flag,
        several=row.kind is kinds.environment,
    )
    for row in SETTINGS.values()
    if row.magic
]


@click.command("status", cls=MagicCommand)
def show_status() -> None:
    """Shows the status, like %accelerate alone."""
    from IPython.display import display

    display(status.collect())  # type: ignore[no-untyped-call]


SUBCOMMANDS = (
    show_status,
    rank_commands.cells,
    rank_commands.stop,
    rank_commands.restart,
    rank_commands.interrupt,
    rank_commands.logs,
    rank_commands.push,
    rank_commands.pull,
    rank_commands.stacks,
    rank_commands.debug,
    job_commands.list_jobs,
    job_commands.attach_job,
    job_commands.flamegraph,
    job_commands.profile,
    job_commands.pause,
    resume_command.resume,
    job_commands.checkpoint,
    job_commands.end_after_epoch,
    job_commands.tune,
    job_commands.rule,
)


_HELP = """Shows or changes the settings for launches from this notebook.

\b
%accelerate                        shows the devices, the settings with their sources, and a preview of a launch
%accelerate -n 2 --device cpu      sets options for notebook_launcher(), %%accelerate, and Accelerator() on ranks
%accelerate --reset -n 4           discards earlier settings first
%accelerate --gpus 0,2 --save      also writes them to the configuration file, for every notebook and script

Arguments of notebook_launcher() override the settings made here, which override environment variables, which
override the configuration file. Settings that cannot work are refused at once, and then nothing is changed.
"""


class _Accelerate(MagicGroup):
    interface = "%accelerate"


@click.group(cls=_Accelerate, invoke_without_command=True, params=_OPTIONS, commands=SUBCOMMANDS, help=_HELP)
@click.option("--save", is_flag=True, help="Writes the notebook's settings to the configuration file.")
@click.option("--reset", is_flag=True, help="Discards the notebook's earlier settings.")
@click.pass_context
def command(context: click.Context, /, save: bool, reset: bool, **given: Any) -> None:
    """Runs a line without a subcommand."""
    has_options = save or reset or any(value not in (None, ()) for value in given.values())
    if context.invoked_subcommand is not None:
        if has_options:
            raise ConfigurationError(f"%accelerate {context.invoked_subcommand} takes no options of %accelerate itself")
    elif has_options:
        configure.run(given, save=save, reset=reset)
    else:
        context.invoke(show_status)
