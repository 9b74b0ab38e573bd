"""Gradient accumulation: after which batches the optimizer steps, and when gradients are synchronized."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

from torch import nn

from notebook_accel.train.models import compiling
from notebook_accel.train.ranks.gradient_state import ActiveLoader, GradientState
from notebook_accel.train.strategies.base import Strategy


class NullContext:
    """A context manager that does nothing; the base of `NoSync`."""

    __slots__ = ()

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None


NO_OP = NullContext()


class NoSync(NullContext):
    """Disables the synchronization of the models' gradients, as DDP's `no_sync` does. Blocks may be nested."""

    __slots__ = ("_before", "_models", "_strategy")

    def __init__(self, strategy: Strategy, models: Sequence[nn.Module]) -> None:
        self._strategy = strategy
        self._models = [compiling.inner(model) for model in models]

    def __enter__(self) -> None:
        self._before = [self._strategy.set_gradient_sync(model, False) for model in self._models]

    def __exit__(self, *_: object) -> None:
        for model, before in zip(reversed(self._models), reversed(self._before), strict=True):  # one may be there twice
            self._strategy.set_gradient_sync(model, before)


class _Block(NullContext):
    """What `accumulate` returns. A block within it is about the same batch.

    Args:
        accumulation: What has decided about the batch.
        syncing: Whether gradients are synced within it.
    """

    __slots__ = ("_accumulation", "_syncing")

    def __init__(self, accumulation: Accumulation, syncing: NullContext) -> None:
        self._accumulation = accumulation
        self._syncing = syncing

    def __enter__(self) -> None:
        self._accumulation.open_blocks += 1
        self._syncing.__enter__()

    def __exit__(self, *error: object) -> None:
        self._syncing.__exit__(*error)
        self._accumulation.open_blocks -= 1


class Accumulation:
    """Counts the batches of each model, and decides after which of them the optimizer steps.

    A loop may use its batch for several models in turn, as one that trains a GAN does, so each model has its own count.
    """

    def __init__(self, strategy: Strategy, state: GradientState) -> None:
        self.strategy = strategy
        self.state = state
        self.open_blocks = 0
        """The blocks of `accumulate` that the loop is in."""
        self.step = 0
        self._check: Callable[[GradientState, int], None] | None = None
        self._supports_no_sync = strategy.supports_no_sync

    @property
    def step(self) -> int:
        """The number of batches of the last model since a loader last ended; `accelerator.step` returns it.

        If it is set, all models continue from there.
        """
        return self._step

    @step.setter
    def step(self, value: int) -> None:
        self._step = self._start = value
        self._counts: WeakKeyDictionary[nn.Module, int] = WeakKeyDictionary()
        """The number of batches of each model; that of others is `_start`."""
        self._ends: WeakKeyDictionary[nn.Module, dict[ActiveLoader, int]] = WeakKeyDictionary()
        """For each model, the last batch of a loader after which its optimizer stepped."""

    def __getstate__(self) -> dict[str, Any]:
        return {"strategy": self.strategy, "state": self.state, "step": self.step}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["strategy"], state["state"])  # type: ignore[misc]
        self.step = state["step"]

    @contextmanager
    def checked_by(self, check: Callable[[GradientState, int], None]) -> Iterator[None]:
        """Calls a check before the first batch of the block, with the number of batches since a loader last ended."""
        self._check = check
        try:
            yield
        finally:
            self._check = None

    def next(self, models: Sequence[nn.Module]) -> NullContext:
        """Counts a batch; returns a context in which its gradients are synced only if the optimizer steps after it."""
        state = self.state
        if self._check is not None:
            self._check(state, self.step)
            self._check = None
        state.turn += 1
        if not self.open_blocks:
            state.sync_gradients = self._is_due(models)
        if state.sync_gradients or not self._supports_no_sync or state.sync_each_batch:
            return _Block(self, NO_OP)
        return _Block(self, NoSync(self.strategy, models))

    def _is_due(self, models: Sequence[nn.Module]) -> bool:
        """Counts a batch of these models; returns whether their optimizers step after it."""
        state = self.state
        if state.sync_with_dataloader and state.end_of_dataloader:
            self._end(models)
            return True
        step = self._start + 1
        counts = self._counts
        for model in reversed(models):  # the first one decides
            counts[model] = step = counts.get(model, self._start) + 1
        if not models:
            self._start = step
        self._step = step
        return step % state.num_steps == 0

    def _end(self, models: Sequence[nn.Module]) -> None:
        """Restarts the count after the last batch of a loader, in which each model should step once."""
        batch, ends = self.state.batches_by_loader(), self._ends
        is_part = self.state.num_steps > 1 and any(ends.get(model) == batch for model in models)
        if is_part:
            warnings.warn(
                "accumulate was entered again for the same model and the last batch of its loader, where each block "
                f"ends in a step, although gradients are accumulated over {self.state.num_steps} blocks: if the loop "
                "divides its batches, pass gradient_accumulation_plugin=GradientAccumulationPlugin("
                f"num_steps={self.state.num_steps}, sync_with_dataloader=False) to Accelerator",
                stacklevel=5,
            )
        self.step = 0
        self._ends = ends
        ends.update((model, batch) for model in models)
