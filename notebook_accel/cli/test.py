"""`notebook-accel test`: whether this machine can train on several ranks."""

from __future__ import annotations

import sys

import click

from notebook_accel import hardware
from notebook_accel.cli.checks import CHECKS, Finding

_MARKS = {"ok": ("ok", "green"), "slow": ("slow", "yellow"), "wrong": ("WRONG", "red")}


@click.command("test")
@click.option("--num_processes", "--num-processes", "ranks", type=click.IntRange(1), help="Default: all GPUs, or 2.")
def command(ranks: int | None) -> None:
    """Check that this machine can train on several ranks.

    Starts ranks on all GPUs, or two on the CPU: as a notebook does, and as a script does. They exchange tensors,
    compute in 16 bits, save and load a checkpoint. Says what is slow or wrong, and what to do about it; the exit code
    is 1 if something is wrong.
    """
    ranks = ranks or len(hardware.detect().gpus) or 2
    found: list[Finding] = []
    for check in CHECKS.values():
        for finding in check(ranks):
            found.append(finding)
            _show(finding)
        if any(each.grade == "wrong" for each in found):
            break  # the others build on it
    wrong, slow = (sum(each.grade == grade for each in found) for grade in ("wrong", "slow"))
    if wrong:
        click.echo("\nThis machine cannot train on several ranks until that is put right.")
        sys.exit(1)
    click.echo("\nThis machine is ready" + (f"; {slow} of these cost time." if slow else "."))


def _show(finding: Finding) -> None:
    mark, colour = _MARKS[finding.grade]
    click.echo(f"{click.style(f'{mark:<5}', fg=colour)} {finding.name}: {finding.text}")
    if finding.grade != "ok" and finding.advice:
        click.echo(f"      → {finding.advice}")
