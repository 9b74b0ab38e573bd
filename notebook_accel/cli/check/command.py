"""`notebook-accel test`: checks whether this machine can train on several ranks."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator

import click

from notebook_accel import hardware
from notebook_accel.cli.check.probes import CHECKS, Finding
from notebook_accel.config.click_options import WholeNumber
from notebook_accel.config.environment_variables import FILE_VARIABLE

_MARKS = {"ok": ("ok", "green"), "slow": ("slow", "yellow"), "wrong": ("WRONG", "red")}


@click.command("test")
@click.option(
    "--num_processes",
    "--num-processes",
    "ranks",
    type=WholeNumber(1),
    help="The number of ranks. Default: one per GPU, or 2.",
)
def command(ranks: int | None) -> None:
    """Check that this machine can train on several ranks.

    Starts ranks on all GPUs, or two on the CPU, both as a notebook does and as a script does. They exchange tensors,
    compute in 16 bits, and save and load a checkpoint. Reports what is slow or wrong and what to do about it; the exit
    code is 1 if something is wrong. Ignores saved settings, because they may be for several machines.
    """
    with _without_settings():
        found = _check(ranks or len(hardware.detect().gpus) or 2)
    wrong, slow = (sum(each.grade == grade for each in found) for grade in ("wrong", "slow"))
    if wrong:
        click.echo("\nThis machine cannot train on several ranks until this is fixed.")
        sys.exit(1)
    click.echo("\nThis machine is ready" + (f", but {slow} of these checks found something slow." if slow else "."))


@contextlib.contextmanager
def _without_settings() -> Iterator[None]:
    before = os.environ.get(FILE_VARIABLE)
    with tempfile.NamedTemporaryFile(suffix=".yaml") as empty:
        os.environ[FILE_VARIABLE] = empty.name
        try:
            yield
        finally:
            del os.environ[FILE_VARIABLE]
            if before is not None:
                os.environ[FILE_VARIABLE] = before


def _check(ranks: int) -> list[Finding]:
    """Runs the checks, and shows each finding."""
    found: list[Finding] = []
    for check in CHECKS.values():
        for finding in check(ranks):
            found.append(finding)
            _show(finding)
        if any(each.grade == "wrong" for each in found):
            break  # the other checks depend on it
    return found


def _show(finding: Finding) -> None:
    mark, color = _MARKS[finding.grade]
    click.echo(f"{click.style(f'{mark:<5}', fg=color)} {finding.name}: {finding.text}")
    if finding.grade != "ok" and finding.advice:
        click.echo(f"      → {finding.advice}")
