"""Merges the shards of a checkpoint, as `notebook-accel merge-weights` does on the command line."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from notebook_accel.train.checkpoints.layouts import merging
from notebook_accel.train.ranks.state import PartialState


def merge_fsdp_weights(
    checkpoint_dir: str | os.PathLike[str],
    output_path: str | os.PathLike[str],
    safe_serialization: bool = True,
    remove_checkpoint_dir: bool = False,
) -> None:
    """Writes the sharded weights of a checkpoint as one file, on the main rank; all ranks call it.

    Args:
        checkpoint_dir: The checkpoint, or the folder of one model in it.
        output_path: The folder to write to.
        safe_serialization: Whether to write safetensors rather than torch's pickle.
        remove_checkpoint_dir: Whether to remove the shards afterwards.

    Raises:
        CheckpointError: There are no shards, or they cannot be read.
    """
    state = PartialState()
    if state.is_main_process:
        merging.merge(Path(checkpoint_dir), Path(output_path), "10GB", safe_serialization)
        if remove_checkpoint_dir:
            shutil.rmtree(checkpoint_dir)
    state.wait_for_everyone()
