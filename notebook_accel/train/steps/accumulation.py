"""Gradient accumulation: which batches end in a step, and when the ranks exchange gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from notebook_accel.errors import ConfigurationError
from notebook_accel.train.models import compiling
from notebook_accel.train.ranks.gradient_state import GradientState
from notebook_accel.train.strategies.base import Strategy


class Block:
    """A `with` block without effect; also the base of those with an effect."""

    __slots__ = ()

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None


NOTHING = Block()


class WithoutSync(Block):
    """A `with` block whose backward passes leave the gradients on the rank."""

    __slots__ = ("_models", "_strategy")

    def __init__(self, strategy: Strategy, models: Sequence[nn.Module]) -> None:
        self._strategy = strategy
        self._models = [compiling.inner(model) for model in models]

    def __enter__(self) -> None:
        for model in self._models:
            self._strategy.set_gradient_sync(model, False)

    def __exit__(self, *_: object) -> None:
        for model in self._models:
            self._strategy.set_gradient_sync(model, True)


class Accumulation:
    """Counts batches, and decides which of them end in a step."""

    def __init__(self, strategy: Strategy, state: GradientState) -> None:
        self.strategy = strategy
        self.state = state
        self.step = 0
        """Batches since the last step; what `accelerator.step` shows."""
        self._syncs = strategy.syncs

    def next(self, models: Sequence[nn.Module]) -> Block:
        """Counts a batch; returns a block in which gradients are exchanged if the batch ends in a step."""
        state = self.state
        if state.sync_with_dataloader and state.end_of_dataloader:
            self.step = 0
            state.sync_gradients = True
            return NOTHING
        self.step += 1
        state.sync_gradients = due = self.step % state.num_steps == 0
        if due or not self._syncs or state.sync_each_batch:
            return NOTHING
        return WithoutSync(self.strategy, models)


class DeviceWatch:
    """Detects a prepared model that has left its device, since later errors would be far from the cause."""

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
