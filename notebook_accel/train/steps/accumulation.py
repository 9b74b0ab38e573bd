"""Gradient accumulation: after which batches the optimizer steps, and when gradients are synchronized."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from torch import nn

from notebook_accel.train.models import compiling
from notebook_accel.train.ranks.gradient_state import GradientState
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


class Accumulation:
    """Counts batches, and decides after which of them the optimizer steps."""

    def __init__(self, strategy: Strategy, state: GradientState) -> None:
        self.strategy = strategy
        self.state = state
        self.step = 0
        """The number of batches since a loader last ended; `accelerator.step` returns it."""
        self._check: Callable[[GradientState, int], None] | None = None
        self._supports_no_sync = strategy.supports_no_sync

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
        if state.sync_with_dataloader and state.end_of_dataloader:
            self.step = 0
            state.sync_gradients = True
            return NO_OP
        self.step += 1
        state.sync_gradients = due = self.step % state.num_steps == 0
        if due or not self._supports_no_sync or state.sync_each_batch:
            return NO_OP
        return NoSync(self.strategy, models)
