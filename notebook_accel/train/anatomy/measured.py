"""Measures what the observers of a step do not see: copies of batches to the device, and forward passes."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from notebook_accel.train.anatomy import step_clock
from notebook_accel.train.anatomy.step_clock import (
    COPY,
    DATA,
    FORWARD,
    REST,
    StepClock,
)
from notebook_accel.train.models.compiling import CallInPlace


class MeasuredTransfer:
    """A transfer of batches to the device, whose time is that of copies.

    Args:
        transfer: What moves the batches.
        clock: The rank's clock.
    """

    def __init__(self, transfer: Any, clock: StepClock) -> None:
        self._transfer = transfer
        self._enter = clock.enter

    def load(self, batch: Any) -> Any:
        self._enter(COPY)
        loaded = self._transfer.load(batch)
        self._enter(DATA)
        return loaded

    def deliver(self, batch: Any) -> Any:
        self._enter(COPY)
        delivered = self._transfer.deliver(batch)
        self._enter(DATA)
        return delivered


def watch_forward(model: nn.Module) -> None:
    """Measures the forward passes of a prepared model.

    Hooks would make each pass some 10 µs slower. What `Module.compile` sets instead is called in place of `forward` and
    all hooks, belongs to no state, and is left out where a module is pickled.
    """
    if not isinstance(model._compiled_call_impl, MeasuredCall):
        model.__dict__["_compiled_call_impl"] = MeasuredCall(model)


class MeasuredCall(CallInPlace):
    """Calls a model and measures its forward pass; can be pickled, since DDP pickles it too."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        call = self.given or self.module._call_impl
        clock = step_clock.current()
        # A model within another is part of that one's pass, and an evaluation isn't part of a training step.
        if clock is None or clock.part == FORWARD or not torch.is_grad_enabled() or torch.compiler.is_compiling():
            return call(*args, **kwargs)
        clock.enter(FORWARD)
        try:
            return call(*args, **kwargs)
        finally:
            clock.enter(REST)
