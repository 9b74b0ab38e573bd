"""Says before the first step what a resumed run could not restore."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader, IterableDataset

from notebook_accel.errors import ConfigurationError
from notebook_accel.train.checkpoints.background import report
from notebook_accel.train.checkpoints.contents import Contents
from notebook_accel.train.steps.optimizer import AcceleratedOptimizer


def check(contents: Contents, *, has_hooks: bool, even_batches: bool) -> None:
    """Reports what checkpoints will lack.

    Args:
        contents: What they contain.
        has_hooks: Whether the user has registered hooks of `save_state`.
        even_batches: Whether all ranks have the same number of batches.

    Raises:
        ConfigurationError: Nothing is prepared, or a state could not be read back.
    """
    if not contents.models and not contents.optimizers:
        raise ConfigurationError(
            "accelerator.epochs() saves prepared objects, but nothing has been prepared: call "
            "prepare(model, optimizer, loader) before the loop"
        )
    for part in contents.common():
        part.check()
    for found in _findings(contents, has_hooks=has_hooks, even_batches=even_batches):
        report(found)


def _findings(contents: Contents, *, has_hooks: bool, even_batches: bool) -> Iterator[str]:
    parameters = {id(parameter) for model in contents.models for parameter in model.parameters()}
    # By their types, since `isinstance` may run code of any object.
    optimizers, schedulers = [], []
    for each in gc.get_objects():
        if issubclass(type(each), Optimizer) and type(each) is not AcceleratedOptimizer:
            optimizers.append(each)
        elif issubclass(type(each), LRScheduler):
            schedulers.append(each)
    for optimizer in optimizers:
        held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        if held & parameters and all(optimizer is not each for each in contents.optimizers):
            yield (
                f"an optimizer ({type(optimizer).__name__}) of a prepared model is not prepared, so a resumed run "
                "starts it afresh: pass it to accelerator.prepare"
            )
    saved = [each.scheduler for each in contents.schedulers]
    for scheduler in saved:  # which grows: those within others
        saved += getattr(scheduler, "_schedulers", ())
    for scheduler in schedulers:
        if any(scheduler.optimizer is each for each in contents.optimizers) and all(
            scheduler is not each for each in saved
        ):
            yield (
                f"a scheduler ({type(scheduler).__name__}) of a prepared optimizer is not prepared, so a resumed run "
                "starts it afresh: pass it to accelerator.prepare, or to register_for_checkpointing"
            )
    for index, loader in enumerate(contents.loaders):
        if isinstance(loader.base_dataloader.dataset, IterableDataset) and not loader.is_stateful:
            yield (
                f"loader {index} reads an iterable dataset, whose position cannot be saved: a resumed run reads what "
                "was done once more, and drops it. With DataLoaderConfiguration(use_stateful_dataloader=True) it "
                f"need not{_on_random_numbers(loader.base_dataloader)}"
            )
    if has_hooks:
        yield "hooks that are registered for save_state and load_state are not called for these checkpoints"
    if not even_batches:
        yield "with even_batches=False, ranks may have different numbers of batches: only the ends of epochs are saved"


def _on_random_numbers(loader: DataLoader[Any]) -> str:
    """What to do if an iterable dataset draws random numbers where the training draws some in between."""
    if loader.num_workers or isinstance(getattr(loader.dataset, "generator", None), torch.Generator):
        return ""
    return (
        ". If it draws random numbers, for example to shuffle, they are different then, and some samples may be "
        "repeated and others left out: have it draw from a torch.Generator in its attribute `generator`, or pass "
        "num_workers=1 to the loader"
    )
