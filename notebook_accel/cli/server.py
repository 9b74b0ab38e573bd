"""`notebook-accel server`: the base servers of this user, which have imported torch for the launches to come."""

from __future__ import annotations

import json
import sys

import click

from notebook_accel.launch.engines import base_server
from notebook_accel.rank_spans import counted


@click.group()
def command() -> None:
    """Show or end the processes that have imported torch for later launches.

    The first launch of a kernel or a script is faster with such a base server. It is started after a launch, and ends
    after an hour without a kernel. To use none, set NOTEBOOK_ACCEL_SHARED_SERVER=0.
    """


@command.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def status(as_json: bool) -> None:
    """List your base servers, those of other environments included."""
    found = [each for _, each in base_server.running()]
    if as_json:
        click.echo(json.dumps(found, indent=2))
    else:
        click.echo("\n".join(map(base_server.describe, found)) or "no base server is running")


@command.command()
@click.option("--all", "everywhere", is_flag=True, help="End those of your other environments, too.")
def stop(everywhere: bool) -> None:
    """End the base servers of this environment. Kernels, scripts, and their ranks continue."""
    click.echo(f"ended {counted(base_server.stop(None if everywhere else sys.prefix), 'base server')}")
    if not everywhere and (left := sum(each["prefix"] != sys.prefix for _, each in base_server.running())):
        click.echo(f"{counted(left, 'base server')} left in other environments; to end all of them, add --all")
