"""`notebook-accel compare`: two jobs on this machine's disk side by side."""

from __future__ import annotations

import json

import click

from notebook_accel.insight.comparison import compare
from notebook_accel.launch.driver import attach


@click.command()
@click.argument("first", metavar="FIRST")
@click.argument("second", metavar="SECOND")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(first: str, second: str, as_json: bool) -> None:
    """Compare two jobs: throughput, parts of a step, memory, and the values that they reported.

    FIRST and SECOND are IDs from `notebook-accel jobs`, or enough of their beginnings to be unique. SECOND is compared
    with FIRST, so give the older one or the one with fewer ranks first.
    """
    one, other = attach.find(first), attach.find(second)
    if one.id == other.id:
        raise click.UsageError(f"both names refer to job {one.id}: give two different jobs")
    found = compare(one, other)
    if as_json:
        lines = [line._asdict() for line in found.lines]
        click.echo(json.dumps({"verdict": found.verdict, "lines": lines}, indent=2))
    else:
        click.echo(repr(found))
