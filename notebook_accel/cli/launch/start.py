"""From the options of `launch` to its end: decides what to start, and has it started and shown."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from notebook_accel import hardware
from notebook_accel.cli.exit_codes import USER_ERROR
from notebook_accel.cli.launch import request
from notebook_accel.cli.launch.choices import Choices
from notebook_accel.cli.launch.elastic import Order
from notebook_accel.cli.launch.monitor import Agent
from notebook_accel.cli.launch.request import Request
from notebook_accel.config.layers import merge
from notebook_accel.config.resolve import base_layers
from notebook_accel.config.translation import from_config
from notebook_accel.launch.show import front_end

if TYPE_CHECKING:
    from notebook_accel.cli.watch.watcher import Watcher


def start(agent: Agent, target: str, arguments: Sequence[str], options: Mapping[str, Any]) -> NoReturn:
    """Runs what the command line asks for, to its end.

    Args:
        agent: Starts several ranks; for one it is dismissed.
        target: The script, module, program or notebook.
        arguments: Its own arguments.
        options: Those of the command line, by name; `None` where it says nothing.

    Raises:
        ConfigurationError: An option, or a combination, cannot work.
        HardwareError: There are fewer devices than were asked for.
    """
    wanted = request.make(target, arguments, _choices(options), hardware.detect(), os.environ)
    for notice in () if wanted.quiet else wanted.notices:
        click.echo(notice, err=True)
    if wanted.options is None:
        agent.dismiss()
        _become(wanted)
    watcher = _watcher(target, wanted) if _can_watch(wanted) else None
    sys.exit(agent.run(_order(wanted), watcher))


def _choices(options: Mapping[str, Any]) -> Choices:
    """The command line, laid over the settings below it."""
    given = {name: value for name, value in options.items() if value not in (None, ())}
    file = given.get("config_file")
    config = merge(base_layers(os.environ, None if file is None else Path(file)))
    told = {_OPTION_OF.get(key, key): each.value for key, each in from_config(config).items()}
    if given.get("num_machines") == 1:
        told = {name: value for name, value in told.items() if name not in _OF_SEVERAL}
    return Choices(given, told, config.notices)


_OPTION_OF = {"use_cpu": "cpu"}
"""Options that the file has under another name."""
_OF_SEVERAL = ("machine_rank", "main_process_ip", "main_process_port", "rdzv_backend", "rdzv_conf", "same_network")
"""What the file says of several machines, which means nothing where the command line says that there is one."""


def _order(wanted: Request) -> Order:
    arguments = wanted.elastic()
    return Order(arguments, wanted.environment, wanted.quiet, wanted.debug, wanted.world_size)


def _watcher(target: str, wanted: Request) -> Watcher:
    """Who draws the ranks."""
    from notebook_accel.cli.watch.subject import Subject
    from notebook_accel.cli.watch.watcher import Watcher

    is_module = wanted.launched[0] == "--module" and not target.endswith(".ipynb")
    path = Path(target).resolve()
    name = f"-m {target}" if is_module else path.name + "/" * path.is_dir()
    return Watcher(Subject(name, wanted.placement.words, wanted.placement.size, wanted.world_size))


def _can_watch(wanted: Request) -> bool:
    """Whether ranks can be drawn: in a terminal, if they run Python, unless the user wants the script's lines alone."""
    return front_end.can_draw() and sys.stdout.isatty() and wanted.launched[0] != "--no-python" and not wanted.quiet


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
