"""The objects that an Accelerator has prepared: how each is made ready for the ranks, once, and what they must fit."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, TypeVar

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader

from notebook_accel import events
from notebook_accel.errors import ConfigurationError
from notebook_accel.train import step_timing
from notebook_accel.train.models import compiling, parallel_wrappers, prepare_checks
from notebook_accel.train.models.precision import Precision
from notebook_accel.train.options.plugins import TorchDynamoPlugin
from notebook_accel.train.steps.checks import DeviceWatch, FirstBackward
from notebook_accel.train.steps.optimizer import AcceleratedOptimizer
from notebook_accel.train.steps.optimizer import inner as own_optimizer
from notebook_accel.train.steps.replicas import StepCheck
from notebook_accel.train.steps.scheduler import AcceleratedScheduler
from notebook_accel.train.strategies.base import Strategy

T = TypeVar("T")


class Prepared:
    """The prepared objects of one Accelerator.

    Args:
        strategy: What distributes the models.
        precision: What they compute in.
        compiler: How they are compiled.
        clipping: The greatest norm of the gradients, to which each optimizer step clips them; `None`: any.
    """

    def __init__(
        self, strategy: Strategy, precision: Precision, compiler: TorchDynamoPlugin, clipping: float | None = None
    ) -> None:
        self.models: list[nn.Module] = []
        self.optimizers: list[AcceleratedOptimizer] = []
        self.schedulers: list[AcceleratedScheduler] = []
        self.loaders: list[DataLoader[Any]] = []
        self._strategy = strategy
        self._precision = precision
        self._compiler = compiler
        self._clip = None if clipping is None else partial(strategy.clip_grad_norm_, max_norm=clipping, norm_type=2.0)
        self._watch = DeviceWatch()
        self._first_backward = FirstBackward(strategy) if strategy.state.use_distributed else None
        """`None` after the second backward pass, and on a single rank."""

    def add_models(
        self, models: Sequence[nn.Module], placements: Sequence[bool], optimizers: Sequence[Optimizer]
    ) -> list[nn.Module]:
        """Prepares the models that are not prepared yet in one call, with the optimizers that hold their parameters."""
        known = [self.known(model) for model in models]
        new = [index for index, model in enumerate(known) if model is None]
        inner = [compiling.inner(models[index]) for index in new]
        to_wrap = [position for position, model in enumerate(inner) if not self._strategy.is_prepared(model)]
        for position in to_wrap:
            if self._strategy.state.use_distributed:
                prepare_checks.refuse_device_map(inner[position])
            self._precision.apply(inner[position])
            if placements[new[position]] and not getattr(inner[position], "hf_device_map", None):
                inner[position] = self._strategy.to_device(inner[position])
        holders = [*(each.optimizer for each in self.optimizers), *(own_optimizer(each) for each in optimizers)]
        if to_wrap:
            wrapped = self._strategy.prepare([inner[position] for position in to_wrap], _distinct(holders))
            for position, model in zip(to_wrap, wrapped, strict=True):
                inner[position] = model
        for index, model in zip(new, inner, strict=True):
            finished = compiling.as_given(model, models[index], self._compiler)
            finished.__dict__["_is_accelerate_prepared"] = True  # other libraries read it
            self.models.append(finished)
            self._watch.add(finished)
            if step_timing.current() is not None:
                step_timing.watch_forward(finished)
            if self._first_backward is not None:
                self._first_backward.add()
            known[index] = finished
        return [model for model in known if model is not None]

    def known(self, model: nn.Module) -> nn.Module | None:
        """The prepared model that wraps `model`; `None` if it was not prepared."""
        own = compiling.inner(model)
        for prepared in self.models:
            inner = compiling.inner(prepared)
            if own is inner or own is parallel_wrappers.unwrap(inner):
                return prepared
        return None

    def add_optimizer(self, optimizer: Optimizer, moves: bool, has_even_steps: bool) -> AcceleratedOptimizer:
        """Prepares one optimizer.

        Args:
            optimizer: The user's, or one that is prepared.
            moves: Whether its state is moved to the devices of its parameters.
            has_even_steps: Whether all ranks are known to take the same number of steps.
        """
        for known in self.optimizers:
            if optimizer is known or optimizer is known.optimizer:
                return known
        prepared = (
            optimizer
            if isinstance(optimizer, AcceleratedOptimizer)
            else AcceleratedOptimizer(optimizer, moves, self._precision.scaler, self._clip)
        )
        if self._strategy.state.use_distributed:
            prepared.check = StepCheck(self._strategy, self.models)
        control = events.step_control()
        if control is not None:
            control.attach(
                "" if has_even_steps else "with even_batches=False, its ranks may take different numbers of steps"
            )
        return remember(self.optimizers, prepared)

    def add_scheduler(
        self, scheduler: LRScheduler, steps_with_optimizer: bool, split_batches: bool, processes: int
    ) -> AcceleratedScheduler:
        """Prepares one scheduler, whose optimizer is prepared.

        Args:
            scheduler: The user's, or one that is prepared.
            steps_with_optimizer: Whether it steps only when its optimizer does.
            split_batches: Whether batches are split among the ranks.
            processes: How many ranks get batches.

        Raises:
            ConfigurationError: Its optimizer is not prepared.
        """
        for known in self.schedulers:
            if scheduler in (known, known.scheduler):
                return known
        own = scheduler.optimizer
        followed = [each for each in self.optimizers if own in (each, each.optimizer)]
        if not followed and steps_with_optimizer:
            raise ConfigurationError(
                "a scheduler was prepared without its optimizer, so it can't know when the optimizer steps: "
                "prepare both in one call, or the optimizer first"
            )
        prepared = AcceleratedScheduler(scheduler, followed, steps_with_optimizer, split_batches, processes=processes)
        return remember(self.schedulers, prepared)

    def refuse_unrelated(self, models: Sequence[nn.Module], optimizers: Sequence[Optimizer]) -> None:
        """Raises or, on one rank, warns of optimizers whose parameters are neither of these nor of prepared models."""
        prepare_checks.refuse_unrelated_optimizers(
            [*self.models, *models], optimizers, several_ranks=self._strategy.state.use_distributed
        )

    def check_devices(self) -> None:
        """Raises for a model that was moved."""
        self._watch.check()

    def check_backward(self, loss: torch.Tensor) -> None:
        """Warns of what is not prepared, and raises for a model that was moved, before a backward pass."""
        self._watch.check()
        if self._first_backward is not None:
            optimizers = [each.optimizer for each in self.optimizers]
            if not self._first_backward.check(loss, self.models, optimizers, self.loaders):
                self._first_backward = None

    def synchronizes(self) -> bool:
        """Whether the next backward pass waits for the gradients of other ranks."""
        return self._strategy.synchronizes(self.models)

    def clear(self) -> None:
        """Forgets all of them."""
        everything: tuple[list[Any], ...] = (self.models, self.optimizers, self.schedulers, self.loaders)
        for prepared in everything:
            prepared.clear()
        self._watch.clear()


def _distinct(optimizers: Sequence[Optimizer]) -> list[Optimizer]:
    return list({id(each): each for each in optimizers}.values())


def remember(known: list[T], new: T) -> T:
    """Appends an object to the list unless the list contains it, and returns the object."""
    if not any(each is new for each in known):
        known.append(new)
    return new
