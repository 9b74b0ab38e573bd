"""`notebook-accel scaling`: runs a script with several numbers of ranks, and shows how its throughput grows."""

from __future__ import annotations

import contextlib
import html
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from notebook_accel.cli.launch import program
from notebook_accel.errors import ConfigurationError
from notebook_accel.runs.scaling import scaling


def _numbers(context: click.Context, param: click.Parameter, value: str) -> list[int]:
    """Reads numbers of ranks, separated by commas."""
    del context, param
    try:
        return [int(each) for each in value.split(",")]
    except ValueError:
        raise click.BadParameter(f"{value!r} is not a list of numbers: write it as in 1,2,4") from None


@click.command(
    context_settings={"allow_interspersed_args": False},
    options_metavar="--processes N,N,... [OPTIONS]",
    help="""Run a script with each number of ranks, one after the other, and show how its throughput grows.

    \b
    notebook-accel scaling --processes 1,2,4 train.py --lr 0.1

    The throughput is that of the training steps with an Accelerator; otherwise, whole runs are compared. Let the
    script train for some seconds. Other settings come from the saved ones (`notebook-accel config show`) and the
    environment. Each run is a job of `notebook-accel jobs`, so you can also compare two of them.
    """,
)
@click.option(
    "--processes", callback=_numbers, metavar="N,N,...", required=True, help="The numbers of ranks to measure."
)
@click.option("-m", "--module", is_flag=True, help="The script is a module, as with `python -m`.")
@click.option("--cpu", is_flag=True, help="Run on the CPU, even if there are GPUs.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.option(
    "--output", type=click.Path(dir_okay=False, path_type=Path), help="Also draw the curve in this HTML file."
)
@click.argument("target", metavar="SCRIPT|MODULE")
@click.argument("arguments", metavar="[ARGUMENTS]...", nargs=-1, type=click.UNPROCESSED)
def command(
    processes: list[int],
    module: bool,
    cpu: bool,
    as_json: bool,
    output: Path | None,
    target: str,
    arguments: tuple[str, ...],
) -> None:
    """Runs the command."""
    if target.endswith(".ipynb"):
        raise ConfigurationError(
            f"{target} is a notebook: call scaling() with your training function in one of its cells"
        )
    if output is not None and not output.absolute().parent.is_dir():
        raise ConfigurationError(f"--output {output}: there is no folder {output.parent}")
    words = program.program(target, arguments, {"module": module})
    name = program.name(target, is_module=module)
    with contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext():  # what the ranks write
        curve = scaling(_script(words, name), processes, **({"device": "cpu"} if cpu else {}))
    if output is not None:
        head = f"<!doctype html><meta charset=utf-8><title>{html.escape(name)}</title>"
        output.write_text(f"{head}{curve._repr_html_()}\n", encoding="utf-8")
    if as_json:
        points = [point._asdict() for point in curve.points]
        click.echo(json.dumps({"unit": curve.unit, "notes": curve.notes, "points": points}, indent=2))
    else:
        click.echo(repr(curve))


def _script(words: Sequence[str], name: str) -> Callable[[], None]:
    """A function that runs the script in a rank as `python SCRIPT` would."""

    def run() -> None:
        from notebook_accel.launch.rank import script

        try:
            script.program(words)()
        except SystemExit as ending:
            if ending.code:
                raise

    run.__name__ = name
    return run
