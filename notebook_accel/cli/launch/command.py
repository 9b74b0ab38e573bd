"""`notebook-accel launch`, its options and its help. Runs a script, a module or a notebook on every rank."""

from __future__ import annotations

from typing import Any, NoReturn

import click

from notebook_accel.cli.launch.options import GROUPS, OPTIONS, Option
from notebook_accel.config import click_options
from notebook_accel.config.keys import what_to_write


class _Launch(click.Command):
    """Shows options by group, and names an alternative for options of Accelerate, torchrun, and `%accelerate`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            instead = what_to_write(error.option_name, "notebook-accel launch")
            if not instead:
                raise
            raise click.UsageError(f"{error.option_name} is not supported: {instead}", ctx) from None

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for group in GROUPS:
            rows = [_row(option) for option in OPTIONS if option.group == group and option.help]
            if group == GROUPS[0]:
                rows.append(("-h, --help", "Show this message and exit."))
            with formatter.section(group):
                formatter.write_dl(rows)


def _row(option: Option) -> tuple[str, str]:
    names = f"-{option.short}, --{option.name}" if option.short else f"--{option.name}"
    return names if option.is_flag else f"{names} {option.kind.placeholder}", option.help


def _param(option: Option) -> click.Option:
    """The option for the command's parser."""
    names = [*([f"-{option.short}"] if option.short else []), *click_options.spellings(option.name)]
    return click_options.option(names, option.kind, option.help, flag=option.is_flag, several=option.several)


def _start(target: str, arguments: tuple[str, ...], **options: Any) -> NoReturn:
    from notebook_accel.cli.launch import start  # here, because help and completion don't need it

    start.start(target, arguments, options)


command = _Launch(
    "launch",
    params=[
        *map(_param, OPTIONS),
        click.Argument(["target"], metavar="SCRIPT|MODULE|NOTEBOOK"),
        click.Argument(["arguments"], metavar="[ARGUMENTS]...", nargs=-1, type=click.UNPROCESSED),
    ],
    callback=_start,
    context_settings={
        "allow_interspersed_args": False,
        "help_option_names": ["-h", "--help"],
        "max_content_width": 110,
    },
    options_metavar="[OPTIONS]",
    help="""Run a script, a module, or a notebook on every rank.

    Options come before the script, and the script's own arguments after it. Options may be written with underscores or
    dashes. Settings without an option come from the saved settings (`notebook-accel config show`) or the hardware.

    \b
    notebook-accel launch train.py --lr 0.1
    notebook-accel launch --num_processes 4 --mixed_precision bf16 train.py
    notebook-accel launch -m package.train
    notebook-accel launch --cells tag:train --output executed.ipynb notebook.ipynb

    A single rank runs like `python train.py`. Several run as under torchrun, and are a job of `notebook-accel jobs`.
    In a terminal, a row for each rank shows its bars, metrics, and memory, below the ranks' output.

    The exit code is that of the first rank that failed, 2 for a mistake in this command, or 130 after an interrupt. An
    interrupt ends all ranks; a second one kills them.
    """,
)
