"""Warns of a training run that `checkpoint=` does not save, because it is not in a loop over `Accelerator.epochs`."""

from __future__ import annotations

import os
import sys
from typing import Any

from notebook_accel.events import training_step
from notebook_accel.launch.wire.mirrored.on_import import when_imported


def watch() -> None:
    """Warns at the first step of such a training run, on rank 0, if the launch has a folder for checkpoints."""
    if os.environ.get("NOTEBOOK_ACCEL_CHECKPOINT_DIR") and os.environ.get("RANK", "0") == "0":
        when_imported({"torch.optim.optimizer": _warn_at_first_step})


def _warn_at_first_step(module: Any) -> None:
    def on_step(*_: object) -> None:
        hook.remove()
        if training_step() is None:
            print(  # noqa: T201  # a message to the user
                "notebook-accel: checkpoint= does not save this training, because it is not in a loop over "
                "Accelerator.epochs: prepare its objects with an Accelerator, and write `for epoch in "
                "accelerator.epochs(10):`, or save its state yourself",
                file=sys.stderr,
                flush=True,
            )

    hook = module.register_optimizer_step_post_hook(on_step)
