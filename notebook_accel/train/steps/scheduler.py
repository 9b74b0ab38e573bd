"""A prepared scheduler: steps only when its optimizer does, once for each rank that had a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from notebook_accel.train.data.uneven_inputs import refuse_uneven
from notebook_accel.train.ranks import collectives
from notebook_accel.train.ranks.gradient_state import GradientState
from notebook_accel.train.ranks.logging import get_logger
from notebook_accel.train.ranks.state import PartialState
from notebook_accel.train.steps.optimizer import AcceleratedOptimizer

_log = get_logger(__name__)


class AcceleratedScheduler:
    """Wraps the user's scheduler.

    The schedule was written for one rank, so the scheduler steps once for each rank that had a batch, unless batches
    are split. It does not step while gradients are being accumulated, or when the optimizer's step was skipped. A call
    with an argument, such as the metric for a `ReduceLROnPlateau`, is a single step, whatever the number of ranks. That
    metric is averaged over the ranks, all of which make the call.

    Args:
        scheduler: The user's scheduler.
        optimizers: The prepared optimizers whose steps it follows.
        step_with_optimizer: If `False`, every call is a step, regardless of the optimizers.
        split_batches: Whether each batch is split among the ranks.
        processes: How many ranks get batches; `None`: all.
    """

    _is_accelerate_prepared = True

    def __init__(
        self,
        scheduler: LRScheduler,
        optimizers: Optimizer | Sequence[Optimizer],
        step_with_optimizer: bool = True,
        split_batches: bool = False,
        processes: int | None = None,
    ) -> None:
        self.scheduler = scheduler
        self.optimizers = [optimizers] if isinstance(optimizers, Optimizer) else list(optimizers)
        self.gradient_state = GradientState()
        self.step_with_optimizer = step_with_optimizer
        self.split_batches = split_batches
        ranks = PartialState().num_processes if processes is None else processes
        self._warned = False
        self._repeats = None if split_batches or not step_with_optimizer else ranks
        # Only optimizers with a scaler can skip a step.
        self._may_skip = [
            each for each in self.optimizers if isinstance(each, AcceleratedOptimizer) and each.scaler is not None
        ]

    def step(self, *args: Any, **kwargs: Any) -> None:
        """Sets the next learning rate if the optimizers have stepped.

        Raises:
            ConfigurationError: The ranks can't agree on a metric, because some may have run out of batches.
        """
        if self.step_with_optimizer:
            if not self.gradient_state.sync_gradients:
                # A `ReduceLROnPlateau` has no such count.
                if self.gradient_state.adjust_scheduler and hasattr(self.scheduler, "_step_count"):
                    self.scheduler._step_count += 1
                return
            if any(optimizer.step_was_skipped for optimizer in self._may_skip):
                return
        if (args or kwargs) and isinstance(self.scheduler, ReduceLROnPlateau):
            self._step_with_mean(*args, **kwargs)
        # What is given a metric or an epoch doesn't count batches, so the number of ranks doesn't matter to it.
        elif self._repeats is None or args or kwargs:
            self.scheduler.step(*args, **kwargs)
        else:
            self._step_for_each_rank(self._repeats)

    def _step_with_mean(self, metrics: Any, *args: Any, **kwargs: Any) -> None:
        """Steps with the mean of the ranks' metrics: with different ones, their learning rates would differ, too."""
        if PartialState().use_distributed:
            refuse_uneven("ReduceLROnPlateau.step averages its metric over all ranks", "call it after the loop")
            metrics = collectives.mean_of(float(metrics))
        self.scheduler.step(metrics, *args, **kwargs)

    def _step_for_each_rank(self, ranks: int) -> None:
        if ranks > 1 and not self._warned:
            self._warn_outside_of_loaders(ranks)
        for _ in range(ranks):
            # A scheduler with `total_steps` may have fewer steps left than there are ranks, or none, as in Accelerate.
            total = getattr(self.scheduler, "total_steps", None)
            if total is None or total >= self.scheduler._step_count:
                self.scheduler.step()

    def _warn_outside_of_loaders(self, ranks: int) -> None:
        """Warns if it is called between the epochs of a loader, since it then counts epochs rather than batches."""
        if self.gradient_state.in_dataloader or not self.gradient_state.has_looped:
            return
        self._warned = True
        _log.warning(
            "%s.step() was called outside of the loop over a prepared loader. Each call makes %d steps, one for each "
            "rank, as is right if it counts batches. If it counts epochs, pass step_scheduler_with_optimizer=False to "
            "the Accelerator, or leave the scheduler out of prepare.", type(self.scheduler).__name__, ranks,
        )  # fmt: skip

    def get_last_lr(self) -> list[float]:
        return self.scheduler.get_last_lr()  # type: ignore[return-value]

    def get_lr(self) -> list[float]:
        return self.scheduler.get_lr()  # type: ignore[return-value]

    def state_dict(self) -> dict[str, Any]:
        return self.scheduler.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.scheduler.load_state_dict(state_dict)

    def __getattr__(self, name: str) -> Any:
        if name == "scheduler":  # not set yet while the object is being unpickled
            raise AttributeError(name)
        return getattr(self.scheduler, name)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.scheduler!r})"
