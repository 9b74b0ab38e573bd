"""Warns at the first step of a training run of what nothing else would say: that ranks train apart, or save nothing.

Both are seen only where torch's optimizers step, since a function may train without anything of this package.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

from notebook_accel.events import training_step
from notebook_accel.launch.system.own_process import has_process_group
from notebook_accel.launch.wire.mirrored.on_import import when_imported


def watch() -> None:
    """Checks the first step of any optimizer, on rank 0, if the launch has several ranks, or a folder to save to."""
    is_saved, ranks = bool(os.environ.get("NOTEBOOK_ACCEL_CHECKPOINT_DIR")), int(os.environ.get("WORLD_SIZE", "1"))
    if not (is_saved or ranks > 1) or os.environ.get("RANK", "0") != "0":
        return

    is_due = True

    def on_step(*_: object) -> None:
        # The hook stays: while torch calls the hooks, none may be removed.
        nonlocal is_due
        if is_due:
            is_due = False
            for text in _warnings(ranks, is_saved=is_saved):
                print(f"notebook-accel: {text}", file=sys.stderr, flush=True)  # noqa: T201  # a message to the user

    when_imported({"torch.optim.optimizer": lambda module: module.register_optimizer_step_post_hook(on_step)})


def _warnings(ranks: int, *, is_saved: bool) -> Iterator[str]:
    if ranks > 1 and not has_process_group():
        yield (
            f"each of the {ranks} ranks trains a model of its own, because this training has neither an Accelerator "
            "nor a process group. To train one model together, create an Accelerator, pass the model, the optimizer, "
            "and the loader to its prepare, and call accelerator.backward(loss). To train several models on purpose, "
            "use sweep or map_on_ranks"
        )
    if is_saved and training_step() is None:
        yield (
            "checkpoint= does not save this training, because it is not in a loop over Accelerator.epochs: prepare its "
            "objects with an Accelerator, and write `for epoch in accelerator.epochs(10):`, or save its state yourself"
        )
