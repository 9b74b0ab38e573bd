"""The places that tell the clock where a part of a step begins and ends: loaders, copies, models, backward passes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from notebook_accel.train.anatomy import step_clock
from notebook_accel.train.anatomy.step_clock import (
    BACKWARD,
    COPY,
    DATA,
    FORWARD,
    REST,
    SYNC,
    LoaderFacts,
    StepClock,
)
from notebook_accel.train.models.compiling import CallInPlace


def batches(clock: StepClock, facts: LoaderFacts, found: Iterator[Any]) -> Iterator[Any]:
    """Yields the batches; the time that each takes is a wait for data."""
    enter = clock.enter
    enter(DATA)
    try:
        for batch in found:
            clock.loader = facts
            enter(REST)
            yield batch
            enter(DATA)
    finally:
        enter(REST)


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


def backward(clock: StepClock, loss: torch.Tensor, *, synchronizes: bool, **options: Any) -> None:
    """Runs a backward pass and measures it, and apart from it the wait for the gradients of other ranks at its end.

    DDP and FSDP wait in a callback that the autograd engine runs when all gradients are computed. Such callbacks run in
    the order in which they were added, so one that is added first marks the end of the computation.

    Args:
        clock: The rank's clock.
        loss: What the pass begins with.
        synchronizes: Whether the pass synchronizes gradients with other ranks.
        options: Arguments of `Tensor.backward`.
    """
    clock.count_backward(synchronizes=synchronizes)
    hook = None
    if synchronizes and loss.requires_grad:
        hook = loss.register_hook(_on_gradient)  # type: ignore[no-untyped-call]
    clock.enter(BACKWARD)
    try:
        loss.backward(**options)  # type: ignore[no-untyped-call]
    finally:
        clock.enter(REST)
        if hook is not None:
            hook.remove()


def _on_gradient(_: torch.Tensor) -> None:
    torch.autograd.Variable._execution_engine.queue_callback(_on_computed)


def _on_computed() -> None:
    clock = step_clock.current()
    if clock is not None:
        clock.enter(SYNC)
