"""`notebook-accel checkpoints`: lists, verifies, prunes, and converts checkpoints; and `merge-weights`."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Any

import click

from notebook_accel.cli.exit_codes import DAMAGED
from notebook_accel.config.click_options import WholeNumber
from notebook_accel.errors import CheckpointError, did_you_mean
from notebook_accel.launch.job.text import aligned, duration, size
from notebook_accel.train.checkpoints import maintenance, manifest
from notebook_accel.train.checkpoints.maintenance import Listed
from notebook_accel.train.checkpoints.remote_path import AnyPath, RemotePath, parse


class _Folder(click.Path):
    """A path, or the address of a remote folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return parse(value)


_FOLDER = click.argument("folder", metavar="FOLDER", type=_Folder())
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_COLUMNS = ("checkpoint", "step", "epoch", "ranks", "age", "size", "valid")


class _Group(click.Group):
    """Lists the checkpoints of a folder that is given without a command."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] in self.commands:
            return super().resolve_command(ctx, args)
        if len(args) > 1 and not args[1].startswith("-"):  # `list` takes one folder, so the first word is a command
            hint = did_you_mean(args[0], self.commands) or f"; choose one of {', '.join(self.commands)}"
            raise click.UsageError(f"there is no command {args[0]}{hint}", ctx)
        return super().resolve_command(ctx, ["list", *args])


@click.group("checkpoints", cls=_Group, subcommand_metavar="[list|verify|prune|convert] FOLDER")
def command() -> None:
    """List, verify, prune, and convert the checkpoints that `checkpoint=` has saved to a folder.

    A launch on any number of ranks can continue from a checkpoint as it is. The exit code is 0, 1 if `verify` finds a
    damaged one, or 2 for an error.
    """


@command.command("list")
@_FOLDER
@_JSON
def list_all(folder: AnyPath, as_json: bool) -> None:
    """List the checkpoints in FOLDER, oldest first. The sizes of their files are checked, but not their contents."""
    found = [maintenance.inspect(path) for path in maintenance.find(folder)]
    if as_json:
        _show_json([_fields(each) for each in found])
    elif not found:
        click.echo(f"{folder} has no checkpoints", err=True)
    else:
        click.echo("\n".join(aligned([_COLUMNS, *map(_row, found)])))


@command.command()
@_FOLDER
@_JSON
@click.pass_context
def verify(context: click.Context, folder: AnyPath, as_json: bool) -> None:
    """Compare all files of the checkpoints in FOLDER, or of the checkpoint FOLDER, with their checksums."""
    paths = maintenance.find(folder)
    if not paths:
        raise CheckpointError(f"{folder} has no checkpoints")
    found = [maintenance.inspect(path, checksums=True) for path in paths]
    if as_json:
        _show_json([_fields(each) for each in found])
    else:
        for each in found:
            click.echo(f"{each.path}: {each.problem or 'valid'}")
    if any(each.problem for each in found):
        context.exit(DAMAGED)


@command.command()
@_FOLDER
@click.option("--keep", type=WholeNumber(1), required=True, help="How many of the newest valid ones to keep.")
@click.option("--dry-run", "--dry_run", is_flag=True, help="Only show what would be removed.")
@_JSON
def prune(folder: AnyPath, keep: int, dry_run: bool, as_json: bool) -> None:
    """Remove all checkpoints in FOLDER except the newest valid ones, whose checksums match."""
    kept, removed = maintenance.prune(folder, keep, dry_run=dry_run)
    if as_json:
        _show_json({"kept": list(map(str, kept)), "removed": list(map(str, removed)), "dry_run": dry_run})
        return
    for path in removed:
        click.echo(f"{'would remove' if dry_run else 'removed'} {path}")
    click.echo(f"kept {', '.join(path.name for path in kept)}")


@command.command()
@_FOLDER
@click.argument("output", metavar="OUTPUT", type=click.Path(path_type=Path))
@click.option(
    "--max_shard_size", "--max-shard-size", default="10GB", show_default=True, help="The maximum size of one file."
)
@_JSON
def convert(folder: AnyPath, output: Path, max_shard_size: str, as_json: bool) -> None:
    """Write the weights of a model as safetensors to the folder OUTPUT.

    FOLDER is a checkpoint, also one that save_state wrote, or a folder of checkpoints, of which the newest valid one is
    used. The weights may be sharded. They must fit into the memory of this machine. No GPU is used.
    """
    from notebook_accel.train.checkpoints.layouts import merging

    found = maintenance.find(folder)
    checkpoint = maintenance.newest_whole(folder) if found else folder
    if found == [folder]:
        manifest.verify(folder)
    if isinstance(checkpoint, RemotePath):
        with tempfile.TemporaryDirectory() as copy:
            checkpoint.download_all(Path(copy))
            written = merging.convert(Path(copy), output, max_shard_size)
    else:
        written = merging.convert(checkpoint, output, max_shard_size)
    if as_json:
        models = [{"path": str(path), "tensors": count} for path, count in written.items()]
        _show_json({"checkpoint": str(checkpoint), "models": models})
        return
    for path, count in written.items():
        click.echo(f"wrote {count} tensors of {checkpoint} to {path}")


def _fields(found: Listed) -> dict[str, Any]:
    place = found.place
    return {
        "path": str(found.path),
        "step": None if place is None else place.step,
        "epoch": None if place is None else place.epoch,
        "ranks": None if place is None else place.ranks,
        "saved": found.saved,
        "bytes": found.size,
        "valid": not found.problem,
        "problem": found.problem,
    }


def _row(found: Listed) -> tuple[str, ...]:
    place = found.place
    numbers = ("-", "-", "-") if place is None else (str(place.step), str(place.epoch), str(place.ranks))
    age = duration(max(0.0, time.time() - found.saved))
    return (found.path.name, *numbers, age, size(found.size), f"no: {found.problem}" if found.problem else "yes")


def _show_json(found: Any) -> None:
    click.echo(json.dumps(found, indent=2))


@click.command("merge-weights")
@click.argument("checkpoint", metavar="CHECKPOINT", type=click.Path(path_type=Path))
@click.argument("output", metavar="OUTPUT", type=click.Path(path_type=Path))
@click.option(
    "--max_shard_size", "--max-shard-size", default="10GB", show_default=True, help="The maximum size of one file."
)
@click.option(
    "--unsafe_serialization", "--unsafe-serialization", is_flag=True, help="Use pickle instead of safetensors."
)
def merge_weights(checkpoint: Path, output: Path, max_shard_size: str, unsafe_serialization: bool) -> None:
    """Convert the sharded weights of CHECKPOINT to files for one device, in the folder OUTPUT.

    CHECKPOINT is a folder that `accelerator.save_state` wrote under FSDP, or the folder of one model in it. The whole
    model must fit into the memory of this machine. No GPU is used.
    """
    from notebook_accel.train.checkpoints.layouts.merging import merge

    count = merge(checkpoint, output, max_shard_size, not unsafe_serialization)
    click.echo(f"wrote {count} tensors to {output}")
