"""`notebook-accel merge-weights`: turns a sharded checkpoint into safetensors."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("merge-weights")
@click.argument("checkpoint", metavar="CHECKPOINT", type=click.Path(path_type=Path))
@click.argument("output", metavar="OUTPUT", type=click.Path(path_type=Path))
@click.option(
    "--max_shard_size", "--max-shard-size", default="10GB", show_default=True, help="The maximum size of one file."
)
@click.option(
    "--unsafe_serialization", "--unsafe-serialization", is_flag=True, help="Use pickle instead of safetensors."
)
def command(checkpoint: Path, output: Path, max_shard_size: str, unsafe_serialization: bool) -> None:
    """Convert the sharded weights of CHECKPOINT to files for one device, in the folder OUTPUT.

    CHECKPOINT is a folder that `accelerator.save_state` wrote under FSDP, or the folder of one model in it. The whole
    model must fit into the memory of this machine. No GPU is used.
    """
    from notebook_accel.train.checkpoints.layouts.merging import merge

    count = merge(checkpoint, output, max_shard_size, not unsafe_serialization)
    click.echo(f"wrote {count} tensors to {output}")
