"""Ranks on TPU cores: a replica on each, with gradients averaged by torch_xla, or with SPMD one rank for all cores."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from torch import nn
from torch.optim import Optimizer

from notebook_accel.errors import ConfigurationError
from notebook_accel.train.ranks import xla_group
from notebook_accel.train.ranks.gradient_state import GradientState
from notebook_accel.train.ranks.state import PartialState
from notebook_accel.train.strategies.base import Settings, StateDict, Strategy
from notebook_accel.train.strategies.parameters import broadcast_initial_state


class XlaReplicas(Strategy):
    """Keeps the whole model on every rank. With SPMD, torch_xla spreads the only rank's batches over the devices."""

    def __init__(self, state: PartialState, settings: Settings) -> None:
        super().__init__(state, settings)
        self.supports_no_sync = state.use_distributed
        self._to_move: set[int] = set()
        self._models: list[nn.Module] = []
        self._synced: set[int] = set()
        """IDs of optimizers that run the pending graph after their step, outside of prepared loaders."""

    def to_device(self, model: nn.Module) -> nn.Module:
        self._to_move.add(id(model))  # in `prepare`, which knows the optimizers: XLA replaces parameters
        return model

    def prepare(self, models: Sequence[nn.Module], optimizers: Sequence[Optimizer]) -> list[nn.Module]:
        for model in models:
            if id(model) in self._to_move:
                xla_group.move(model, optimizers)
            if self.state.use_distributed:
                broadcast_initial_state(model)
            self._models.append(model)
        self._to_move.clear()
        for optimizer in optimizers:
            if id(optimizer) not in self._synced:
                self._synced.add(id(optimizer))
                optimizer.register_step_post_hook(lambda *_: _sync_outside_of_loaders())
        xla_group.sync()
        return list(models)

    def is_prepared(self, model: nn.Module) -> bool:
        return False

    def after_backward(self) -> None:
        if not self.state.use_distributed:
            return
        parameters = {
            id(each): each for model in self._models if id(model) not in self._local for each in model.parameters()
        }
        xla_group.average([each.grad for each in parameters.values() if each.grad is not None])

    def join(self, models: Sequence[nn.Module]) -> AbstractContextManager[Any]:
        if not self.state.use_distributed:
            return nullcontext()
        raise ConfigurationError(
            "join_uneven_inputs does not work on a TPU, because every rank runs the same compiled steps. Leave it "
            "out, and keep even_batches=True."
        )

    def state_dict(self, model: nn.Module) -> StateDict:
        found: StateDict = xla_group.on_host(dict(model.state_dict()))
        return found

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        found: dict[str, Any] = xla_group.on_host(optimizer.state_dict())
        return found


def _sync_outside_of_loaders() -> None:
    """Runs the pending graph, as a prepared loader does at each batch; otherwise the graph would keep growing."""
    if not GradientState().in_dataloader:
        xla_group.sync()
