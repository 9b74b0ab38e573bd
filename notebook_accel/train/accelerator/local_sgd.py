"""Local SGD: ranks train independently for several steps, then average their weights."""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from notebook_accel.errors import ConfigurationError
from notebook_accel.train.data.uneven_inputs import refuse_uneven

if TYPE_CHECKING:
    from notebook_accel.train.accelerator.accelerator import Accelerator


class LocalSGD:
    """A context in which gradients are not synchronized; weights are averaged every few steps and at the end instead.

    with LocalSGD(accelerator, model, local_sgd_steps=8) as local_sgd:
        for batch in loader:
            with accelerator.accumulate(model):
                ...
                optimizer.step()
                local_sgd.step()

    See Stich, "Local SGD Converges Fast and Communicates Little", ICLR 2019. With one rank it does nothing.

    Args:
        accelerator: The Accelerator that prepared the model.
        model: The prepared model, which must not be sharded.
        local_sgd_steps: The number of calls of `step` between two averages.
        enabled: `False` makes the context do nothing.

    Raises:
        ConfigurationError: `local_sgd_steps` is below 1, the model is not prepared, or the optimizer is schedule-free.
        NotImplementedError: The weights are sharded over the ranks, as with FSDP.
    """

    def __init__(
        self, accelerator: Accelerator, model: torch.nn.Module, local_sgd_steps: int, enabled: bool = True
    ) -> None:
        if local_sgd_steps < 1:
            raise ConfigurationError(f"local_sgd_steps={local_sgd_steps}: weights are averaged every 1 step or more")
        self.enabled = enabled and accelerator.num_processes > 1
        self.num_steps = 0
        self.local_sgd_steps = local_sgd_steps
        self._model = model
        self._ddp: Any = model
        self._no_sync: AbstractContextManager[Any] | None = None
        if self.enabled and not hasattr(model, "no_sync"):
            _refuse(accelerator, model)
        if self.enabled and any(hasattr(each.optimizer, "eval") for each in accelerator._optimizers):
            raise ConfigurationError(
                "LocalSGD averages weights, but a schedule-free optimizer computes those of the evaluation from states "
                "that differ between ranks: use another optimizer, or leave LocalSGD out"
            )

    def __enter__(self) -> LocalSGD:
        if self.enabled:
            self._no_sync = self._ddp.no_sync()
            self._no_sync.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._no_sync is None:
            return
        self._no_sync.__exit__(kind, error, traceback)
        self._no_sync = None
        if error is None:  # otherwise other ranks may never reach the average, and this one would hang
            self._average()

    def step(self) -> None:
        """Counts a step, and averages the weights if it is the last of a round.

        Raises:
            ConfigurationError: Some ranks may run out of batches before the others.
        """
        self.num_steps += 1
        if self.enabled and self.num_steps == 1:
            refuse_uneven("LocalSGD averages the weights of all ranks", "leave LocalSGD out")
        if self.enabled and self.num_steps % self.local_sgd_steps == 0:
            self._average()

    def _average(self) -> None:
        """Averages the weights, with one all-reduce for each dtype rather than one for each parameter."""
        by_dtype: dict[torch.dtype, list[torch.Tensor]] = {}
        for parameter in self._model.parameters():
            by_dtype.setdefault(parameter.dtype, []).append(parameter.data)
        for parameters in by_dtype.values():
            flat = torch.cat([each.flatten() for each in parameters])
            dist.all_reduce(flat)
            flat /= dist.get_world_size()
            parts = torch.split(flat, [each.numel() for each in parameters])
            for each, mean in zip(parameters, parts, strict=True):
                each.copy_(mean.view_as(each))


def _refuse(accelerator: Accelerator, model: torch.nn.Module) -> None:
    if hasattr(model, "set_requires_gradient_sync"):
        raise NotImplementedError(
            f"LocalSGD averages weights, so each rank must hold all of them, but under "
            f"{accelerator.distributed_type.value} a rank holds only a part. Use DDP, or leave LocalSGD out."
        )
    raise ConfigurationError("LocalSGD needs the prepared model: pass what accelerator.prepare(model) returned")
