"""`notebook-accel launch`: a script, a module or a notebook on every rank."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from notebook_accel import hardware
from notebook_accel.cli import request
from notebook_accel.cli.agent import Agent, Order
from notebook_accel.cli.choices import Choices
from notebook_accel.cli.main import USER_ERROR
from notebook_accel.cli.options import FLAG, GROUPS, OPTIONS, TRUTH, Option
from notebook_accel.cli.refusals import alternative
from notebook_accel.cli.request import Request
from notebook_accel.config.layers import merge
from notebook_accel.config.resolve import below
from notebook_accel.config.translation import from_config
from notebook_accel.launch import frontend

if TYPE_CHECKING:
    from notebook_accel.cli.watcher import Watcher


class _Launch(click.Command):
    """Shows its options by group, and knows what to say of the peer's that it has not."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            instead = alternative(error.option_name)
            if instead is None:
                raise
            raise click.UsageError(f"{error.option_name} is not supported: {instead}", ctx) from None

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        shown = {option.name: param for option in OPTIONS for param in self.params if param.name == option.name}
        for group in GROUPS:
            rows = [_row(option, shown[option.name]) for option in OPTIONS if option.group == group and not option.moot]
            if group == GROUPS[0]:
                rows.append(("-h, --help", "Show this message and exit."))
            with formatter.section(group):
                formatter.write_dl(rows)


def _row(option: Option, param: click.Parameter) -> tuple[str, str]:
    names = f"-{option.short}, --{option.name}" if option.short else f"--{option.name}"
    if option.type != FLAG:
        names += f" {param.metavar or _metavar(option)}"
    return names, option.help


def _metavar(option: Option) -> str:
    if isinstance(option.type, tuple):
        return "|".join(option.type)
    return {int: "NUMBER", float: "SECONDS", TRUTH: "true|false"}.get(option.type, "NAME")


def _param(option: Option) -> click.Option:
    """The option for the command's parser."""
    names = dict.fromkeys([f"--{option.name}", f"--{option.name.replace('_', '-')}"])
    declared = [*([f"-{option.short}"] if option.short else []), *names, option.name]
    if option.type == FLAG:
        return click.Option(declared, is_flag=True, default=None)
    kinds = {int: click.INT, float: click.FLOAT, TRUTH: click.BOOL}
    kind = click.Choice(option.type, False) if isinstance(option.type, tuple) else kinds.get(option.type, click.STRING)
    return click.Option(declared, type=kind, multiple=option.several, default=None, metavar=option.metavar)


def _start(target: str, arguments: tuple[str, ...], **options: Any) -> NoReturn:
    agent = Agent()
    try:
        wanted = request.make(target, arguments, _choices(options), hardware.detect(), os.environ)
        for notice in () if wanted.quiet else wanted.notices:
            click.echo(notice, err=True)
        if wanted.options is None:
            agent.dismiss()
            _become(wanted)
        watcher = _watcher(target, wanted) if _can_watch(wanted) else None
        sys.exit(agent.run(_order(wanted, watched=watcher is not None), watcher))
    finally:
        agent.dismiss()


def _choices(options: Mapping[str, Any]) -> Choices:
    """The command line, laid over the settings below it."""
    given = {name: value for name, value in options.items() if value not in (None, ())}
    file = given.get("config_file")
    config = merge(below(os.environ, None if file is None else Path(file)))
    told = {_OPTION_OF.get(key, key): each.value for key, each in from_config(config).items()}
    return Choices(given, told, config.notices)


_OPTION_OF = {"use_cpu": "cpu"}
"""Options that the file has under another name."""


def _order(wanted: Request, *, watched: bool) -> Order:
    arguments = wanted.elastic(watched=watched)
    return Order(arguments, wanted.environment, wanted.quiet, wanted.debug, wanted.world_size)


def _watcher(target: str, wanted: Request) -> Watcher:
    """Who draws the ranks."""
    from notebook_accel.cli.watcher import Subject, Watcher

    is_module = wanted.launched[0] == "--module" and not target.endswith(".ipynb")
    path = Path(target).resolve()
    name = f"-m {target}" if is_module else path.name + "/" * path.is_dir()
    return Watcher(Subject(name, wanted.placement.words, wanted.placement.size, wanted.world_size))


def _can_watch(wanted: Request) -> bool:
    """Whether ranks can be drawn: in a terminal, if they run Python, unless the user wants the script's lines alone."""
    return frontend.can_draw() and sys.stdout.isatty() and wanted.launched[0] != "--no-python" and not wanted.quiet


def _become(wanted: Request) -> NoReturn:
    """Runs the program in place of this process: its exit code, its signals, its terminal are its own."""
    sys.stdout.flush()
    sys.stderr.flush()
    environment = {**os.environ, **wanted.environment}
    try:
        os.execvpe(wanted.program[0], wanted.program, environment)
    except OSError as error:
        click.echo(f"error: {wanted.program[0]} cannot be run: {error.strerror}", err=True)
        sys.exit(USER_ERROR)


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
    help="""Run a script, a module or a notebook on every rank.

    Options come before the script, its own arguments after it. Options may be written with underscores or dashes. What
    no option says comes from the saved settings (`notebook-accel config show`), else from the hardware.

    \b
    notebook-accel launch train.py --lr 0.1
    notebook-accel launch --num_processes 4 --mixed_precision bf16 train.py
    notebook-accel launch -m package.train
    notebook-accel launch --cells tag:train --output executed.ipynb notebook.ipynb

    One rank is run as `python train.py` is. More are started by torch's elastic launcher (torch.distributed.run). In a
    terminal a row for each shows its bars, metrics and memory, below the lines that they write.

    The exit code is that of the first rank that failed, 2 for a mistake in this command, 130 after an interrupt, which
    ends all ranks; a second one kills them.
    """,
)
