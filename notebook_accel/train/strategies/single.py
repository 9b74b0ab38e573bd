"""A single rank, whose models are not wrapped."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from torch import nn
from torch.optim import Optimizer

from notebook_accel.train.strategies.base import Strategy


class SingleDevice(Strategy):
    """One rank, one device."""

    supports_no_sync = False

    def prepare(self, models: Sequence[nn.Module], optimizers: Sequence[Optimizer]) -> list[nn.Module]:
        return list(models)

    def is_prepared(self, model: nn.Module) -> bool:
        return False

    def join(self, models: Sequence[nn.Module]) -> AbstractContextManager[Any]:
        return nullcontext()
