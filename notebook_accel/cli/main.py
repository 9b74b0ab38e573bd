"""The click group and its table of commands. Each command is imported when it is used, so that help is quick."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from typing import NoReturn

import click

from notebook_accel import __version__
from notebook_accel.cli.exit_codes import INTERRUPTED, USER_ERROR
from notebook_accel.errors import NotebookAccelError, did_you_mean

COMMANDS = {
    "config": ("config.command", "Prompt for the settings of this machine, show them, and change them."),
    "launch": ("launch.command.command", "Run a script, a module, or a notebook on every rank."),
    "env": ("env.command", "Show information about this machine for a bug report."),
    "test": ("check.command", "Check that this machine can train on several ranks."),
    "estimate-memory": ("estimate.command", "Estimate the memory that training a model takes."),
    "checkpoints": ("checkpoints.command", "List, verify, prune, and convert checkpoints."),
    "jobs": ("jobs.list_jobs", "List the last jobs of all notebooks."),
    "job": ("jobs.show_job", "Print the state of a job: progress, time left, metrics, and what is wrong."),
    "explain": ("jobs.explain", "Say why a job has failed, is stalled, or is slow."),
    "wait": ("jobs.wait", "Wait until a job ends, stalls, or reaches a value of a metric."),
    "stop": ("jobs.stop", "Stop a job wherever it runs."),
    "log": ("jobs.log", "Print what the ranks of a job have written."),
    "resume": ("jobs.resume", "Continue a job from its checkpoints."),
    "compare": ("jobs.compare_jobs", "Compare two jobs: throughput, parts of a step, memory, and reported values."),
    "scaling": (
        "scale_script.command",
        "Run a script with several numbers of ranks, and show how its throughput grows.",
    ),
    "merge-weights": ("checkpoints.merge_weights", "Convert a sharded checkpoint to safetensors."),
    "server": ("server.command", "Show or end the processes that have imported torch for later launches."),
    "lab": ("lab.command", "Open JupyterLab on the examples."),
}
"""By name, the module and name of the click command, and its line of help. A new command is a row here."""


class _Commands(click.Group):
    """Lists commands from the table, without importing any, and imports the one that is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].rpartition(".")
        found: click.Command = getattr(importlib.import_module(f"notebook_accel.cli.{module}"), name)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            hint = did_you_mean(args[0], COMMANDS)
            if not hint:
                raise
            raise click.UsageError(f"there is no command {args[0]}{hint}", ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    help="""Launch distributed PyTorch training from a notebook or a shell.

    \b
    notebook-accel config          prompts for settings, and saves them
    notebook-accel launch train.py runs the script on every rank

    To complete commands and options in bash, run this line (or use zsh_source or fish_source):

    \b
    eval "$(_NOTEBOOK_ACCEL_COMPLETE=bash_source notebook-accel)"
    """,
)
@click.version_option(__version__, "-V", "--version", message="%(prog)s %(version)s")
def main() -> None:
    """Runs before a command."""


def _show(error: click.ClickException) -> None:
    """Shows click's error with the same first word as every other one, below the usage of the command."""
    if type(error).__name__ == "NoArgsIsHelpError":  # which click has from 8.2 on
        error.show()
        return
    if isinstance(error, click.UsageError) and error.ctx is not None:
        click.echo(f"{error.ctx.get_usage()}\nTry '{error.ctx.command_path} --help' for help.\n", err=True)
    click.echo(f"error: {error.format_message()}", err=True)


def _is_of_output(error: OSError) -> bool:
    """Whether an error comes from writing what a command shows, rather than from one of its files."""
    innermost = [frame for frame, _ in traceback.walk_tb(error.__traceback__)][-1]
    return innermost.f_code is click.echo.__code__


def _discard_output() -> None:
    """Drops what is left to write, which Python would otherwise write as it exits, and fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def run() -> NoReturn:
    """Runs a command, and exits with the code that fits its outcome."""
    try:
        code = main.main(prog_name="notebook-accel", standalone_mode=False)
    except click.ClickException as error:
        _show(error)
        sys.exit(USER_ERROR)
    except NotebookAccelError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(USER_ERROR)
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        sys.exit(INTERRUPTED)
    except BrokenPipeError:  # `| head` has closed the pipe
        _discard_output()
        sys.exit(1)
    except OSError as error:
        if not _is_of_output(error):
            raise
        _discard_output()
        click.echo(
            f"error: the output can't be written: {error.strerror}. Make room on its disk, or redirect it elsewhere",
            err=True,
        )
        sys.exit(USER_ERROR)
    sys.exit(code if isinstance(code, int) else 0)  # that of `Context.exit`; otherwise what the command returned
