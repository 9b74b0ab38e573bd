"""Says early what was not prepared, what a resumed run could not restore, and which model was moved.

Nothing fails without `prepare`: each rank trains a model of its own, or all of them train on the same samples. So the
first backward pass on several ranks, or the first step, is compared with what was prepared.
"""

from __future__ import annotations

import sys
import warnings
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler, SequentialSampler
from torch.utils.data.dataloader import _BaseDataLoaderIter
from torch.utils.hooks import RemovableHandle

from notebook_accel.errors import ConfigurationError
from notebook_accel.train.checkpoints.background import report
from notebook_accel.train.checkpoints.contents import Contents
from notebook_accel.train.data.loader import PreparedLoader
from notebook_accel.train.data.samplers import index_sampler
from notebook_accel.train.models.prepare_checks import live_objects
from notebook_accel.train.steps.optimizer import AcceleratedOptimizer
from notebook_accel.train.strategies.base import Strategy
from notebook_accel.train.tensors import graph

_NOT_USERS = ("torch", "notebook_accel")
_TO_USER = 5
"""The `stacklevel` of the line that calls `backward`, which calls `check_backward`, which calls `check`."""


class _UnpreparedStep:
    """Warns once if an optimizer steps where no Accelerator has prepared a model, nor run a backward pass.

    So it notices a loop that calls `loss.backward()`.
    """

    def __init__(self) -> None:
        self._is_due = False
        self._hook: RemovableHandle | None = None
        """Stays once there is one, since none may be removed while torch calls the hooks."""

    def watch(self, ranks: int) -> None:
        """Checks the next step of any optimizer. There are `ranks` ranks."""
        self._ranks = ranks
        self._is_due = True
        self._hook = self._hook or register_optimizer_step_pre_hook(self._on_step)

    def stop(self) -> None:
        """Checks no step."""
        self._is_due = False

    def _on_step(self, optimizer: Optimizer, *_: Any) -> None:
        if not self._is_due:
            return
        self.stop()
        if not _is_distributed_otherwise(optimizer):
            warnings.warn(
                f"no model was prepared, so each of the {self._ranks} ranks trains a model of its own: pass the model, "
                "the optimizer, and the loader to accelerator.prepare, and call accelerator.backward(loss)",
                stacklevel=level_of_user(),
            )


_unprepared_step = _UnpreparedStep()


def _is_distributed_otherwise(optimizer: Optimizer) -> bool:
    """Whether a model is wrapped by torch's own means, or its parameters are sharded."""
    kinds = {type(parameter).__name__ for group in optimizer.param_groups for parameter in group["params"]}
    wrappers = ("DistributedDataParallel", "FullyShardedDataParallel")
    return "DTensor" in kinds or any(type(each).__name__ in wrappers for each in live_objects(nn.Module))


def level_of_user() -> int:
    """The `stacklevel`, for a warning of the caller, of the next line that is neither torch's nor of this package."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _NOT_USERS:
        frame, level = frame.f_back, level + 1
    return level


class FirstBackward:
    """What has been prepared until the first backward pass, which `check` compares with what the pass uses."""

    def __init__(self, strategy: Strategy) -> None:
        self._strategy = strategy
        self._ranks = strategy.sharing.data.size
        if self._ranks > 1:
            _unprepared_step.watch(self._ranks)
        self._steps: RemovableHandle | None = None
        """The hook on the steps of all optimizers, from the first backward pass to the second."""

    def __reduce__(self) -> tuple[Any, ...]:
        return FirstBackward, (self._strategy,)

    def add(self) -> None:
        """Takes note that a model has been prepared."""
        _unprepared_step.stop()

    def check(
        self,
        loss: torch.Tensor,
        models: Sequence[nn.Module],
        optimizers: Sequence[Optimizer],
        loaders: Sequence[Any],
    ) -> bool:
        """Warns about each kind of object that the loop uses unprepared; returns whether to call it again.

        Args:
            loss: The loss whose backward pass begins.
            models: The prepared models.
            optimizers: The optimizers that prepared ones wrap.
            loaders: The prepared loaders.
        """
        _unprepared_step.stop()
        if self._steps is not None:
            self._steps.remove()
            return False
        self._check_models(loss, models)
        if self._ranks > 1 and (size := _unprepared_loader(loaders)):
            warnings.warn(
                f"this loop reads a DataLoader of {size} samples that was not prepared, so each of the {self._ranks} "
                "ranks reads all of them: pass it to accelerator.prepare, and loop over what that returns",
                stacklevel=_TO_USER - 1,
            )
        self._steps = _check_steps(models, optimizers)
        return True

    def _check_models(self, loss: torch.Tensor, models: Sequence[nn.Module]) -> None:
        used = list(graph.parameters(loss))
        prepared = {id(parameter) for model in models for parameter in model.parameters()}
        if not used or not (self._strategy.keeps_parameters or not models):
            return
        unknown = next((each for each in used if id(each) not in prepared), None)
        if unknown is not None:
            warnings.warn(
                f"this loss depends on parameters that were not prepared, such as one of shape {tuple(unknown.shape)}, "
                f"so each of the {self._ranks} ranks trains a model of its own: pass the model to accelerator.prepare, "
                "and use what that returns",
                stacklevel=_TO_USER,
            )


def _unprepared_loader(prepared: Sequence[PreparedLoader]) -> int:
    """The number of samples of an unprepared loader that is being read; 0 if there is none.

    Only one that has torch's own samplers counts: any other may already yield this rank's share.
    """
    known = {id(index_sampler(loader.base_dataloader)) for loader in prepared}
    for each in live_objects(_BaseDataLoaderIter):
        order = each._index_sampler
        sampler = order.sampler if type(order) is BatchSampler else order
        if id(order) not in known and type(sampler) in (RandomSampler, SequentialSampler):
            return len(sampler)  # type: ignore[arg-type]
    return 0


class _References:
    """Objects, compared by identity and not kept alive: the hook may stay forever without a second backward pass."""

    def __init__(self, objects: Iterable[Any]) -> None:
        self._by_id = {id(each): weakref.ref(each) for each in objects}

    def __contains__(self, found: object) -> bool:
        known = self._by_id.get(id(found))
        return known is not None and known() is found

    def clear(self) -> None:
        self._by_id.clear()


def _check_steps(models: Sequence[nn.Module], optimizers: Sequence[Optimizer]) -> RemovableHandle:
    """Warns, once, if an optimizer steps that holds prepared parameters and is not prepared itself."""
    held = _References(parameter for model in models for parameter in model.parameters())
    prepared = _References(optimizers)

    def on_step(optimizer: Optimizer, *_: Any) -> None:
        own = (parameter for group in optimizer.param_groups for parameter in group["params"])
        if optimizer in prepared or not any(each in held for each in own):
            return
        held.clear()
        warnings.warn(
            "this optimizer was not prepared, so accelerator.save_state leaves it out, and neither gradient "
            "accumulation nor fp16's scaling applies to it: pass it to accelerator.prepare with its model",
            stacklevel=3,
        )

    return register_optimizer_step_pre_hook(on_step)


class DeviceWatch:
    """The devices of the prepared models. A model that was moved would cause an error far from its cause."""

    def __init__(self) -> None:
        self._seen: list[tuple[dict[str, Any], str, torch.device]] = []
        """For each model: the `_parameters` of a module, the name of one in it, and its device."""

    def add(self, model: nn.Module) -> None:
        for module in model.modules():
            for name, parameter in module._parameters.items():
                if parameter is not None:
                    # By name, since some moves replace the parameter object.
                    self._seen.append((module._parameters, name, parameter.device))
                    return

    def clear(self) -> None:
        self._seen.clear()

    def check(self) -> None:
        """Compares the device of each model with the one that `prepare` moved it to.

        Raises:
            ConfigurationError: A model has been moved.
        """
        for parameters, name, device in self._seen:
            found = parameters[name].device
            if found != device:
                raise ConfigurationError(
                    f"a prepared model was moved from {device} to {found}; its optimizer and its batches are still on "
                    f"{device}. Remove the .to(...) or .cuda() after prepare; to export a model, move a copy of it."
                )

    def __reduce__(self) -> tuple[Any, ...]:
        return DeviceWatch, ()


def unsaved(contents: Contents, *, has_hooks: bool, even_batches: bool) -> None:
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
    for found in _unsaved(contents, has_hooks=has_hooks, even_batches=even_batches):
        report(found)


def _unsaved(contents: Contents, *, has_hooks: bool, even_batches: bool) -> Iterator[str]:
    parameters = {id(parameter) for model in contents.models for parameter in model.parameters()}
    alive = live_objects(Optimizer, LRScheduler)
    for optimizer in alive:
        if not issubclass(type(optimizer), Optimizer) or type(optimizer) is AcceleratedOptimizer:
            continue
        held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        if held & parameters and all(optimizer is not each for each in contents.optimizers):
            yield (
                f"an optimizer ({type(optimizer).__name__}) of a prepared model is not prepared, so a resumed run "
                "starts it over: pass it to accelerator.prepare"
            )
    saved = [each.scheduler for each in contents.schedulers]
    for scheduler in saved:  # which grows: those within others
        saved += getattr(scheduler, "_schedulers", ())
    for scheduler in alive:
        if (
            issubclass(type(scheduler), LRScheduler)
            and any(scheduler.optimizer is each for each in contents.optimizers)
            and all(scheduler is not each for each in saved)
        ):
            yield (
                f"a scheduler ({type(scheduler).__name__}) of a prepared optimizer is not prepared, so a resumed run "
                "starts it over: pass it to accelerator.prepare, or to register_for_checkpointing"
            )
    for index, loader in enumerate(contents.loaders):
        if isinstance(loader.base_dataloader.dataset, IterableDataset) and not loader.use_stateful_dataloader:
            yield (
                f"loader {index} reads an iterable dataset, whose position cannot be saved: a resumed run reads what "
                "was done once more, and drops it. DataLoaderConfiguration(use_stateful_dataloader=True) avoids this, "
                "but only for a dataset that saves what it has read ahead, which `shuffle` of `datasets` doesn't"
                f"{_on_random_numbers(loader.base_dataloader)}"
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
        ". If it draws random numbers from a global generator, for example to shuffle, they are different then, and "
        "some samples may be repeated and others left out: have it draw from a torch.Generator in its attribute "
        "`generator`, or pass num_workers=1 to the loader"
    )
