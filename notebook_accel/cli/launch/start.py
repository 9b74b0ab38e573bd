"""Runs a launch: makes the request, starts the ranks, shows them, and exits with their exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from notebook_accel import hardware
from notebook_accel.cli.exit_codes import USER_ERROR
from notebook_accel.cli.launch import program, request
from notebook_accel.cli.launch.agent_process import Agent
from notebook_accel.cli.launch.elastic import Order
from notebook_accel.cli.launch.request import Request
from notebook_accel.config.resolve import base_layers
from notebook_accel.launch.show import front_end

if TYPE_CHECKING:
    from notebook_accel.cli.watch.watcher import Watcher


def start(agent: Agent, target: str, arguments: Sequence[str], options: Mapping[str, Any]) -> NoReturn:
    """Runs a launch to its end, and exits.

    Args:
        agent: Starts the ranks. For a single rank, the agent is killed, and the program replaces this process.
        target: The script, module, program or notebook.
        arguments: Its own arguments.
        options: The options of the command line, by name; `None` for those that are not given.

    Raises:
        ConfigurationError: An option, or a combination, cannot work.
        HardwareError: There are fewer devices than requested.
    """
    given = {name: value for name, value in options.items() if value not in (None, ())}
    file = given.get("config_file")
    below = base_layers(os.environ, None if file is None else Path(file))
    wanted = request.make(target, arguments, given, below, hardware.detect(), os.environ)
    for notice in () if wanted.quiet else wanted.notices:
        click.echo(notice, err=True)
    if wanted.options is None:
        agent.kill()
        _exec(wanted)
    watcher = _watcher(target, wanted) if _can_watch(wanted) else None
    sys.exit(agent.run(_order(wanted), watcher))


def _order(wanted: Request) -> Order:
    arguments = wanted.elastic()
    debug, size = wanted.plan.config.debug, wanted.plan.world_size
    return Order(arguments, wanted.environment, wanted.quiet, debug, size)


def _watcher(target: str, wanted: Request) -> Watcher:
    """Creates the watcher that draws the ranks in the terminal."""
    from notebook_accel.cli.watch.watched_launch import WatchedLaunch
    from notebook_accel.cli.watch.watcher import Watcher

    is_module = wanted.launched[0] == "--module" and not target.endswith(".ipynb")
    planned = wanted.plan
    name = program.name(target, is_module=is_module)
    return Watcher(WatchedLaunch(name, planned.device_text, planned.size, planned.world_size))


def _can_watch(wanted: Request) -> bool:
    """Whether ranks can be drawn, which needs a terminal and Python ranks, unless the user wants only their output."""
    return front_end.can_draw() and sys.stdout.isatty() and wanted.launched[0] != "--no-python" and not wanted.quiet


def _exec(wanted: Request) -> NoReturn:
    """Replaces this process by the program, so that it owns the exit code, the signals and the terminal."""
    sys.stdout.flush()
    sys.stderr.flush()
    environment = {**os.environ, **wanted.environment}
    try:
        os.execvpe(wanted.program[0], wanted.program, environment)
    except OSError as error:
        click.echo(f"error: {wanted.program[0]} cannot be run: {error.strerror}", err=True)
        sys.exit(USER_ERROR)
