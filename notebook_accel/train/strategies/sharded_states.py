"""The base of strategies that shard weights (FSDP2, tensor parallel): saving and stepping need all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import FSDPModule

from notebook_accel.errors import ConfigurationError
from notebook_accel.train.ranks.sample_sharing import Ranks
from notebook_accel.train.ranks.state import PartialState
from notebook_accel.train.strategies.base import Settings, StateDict, Strategy

if TYPE_CHECKING:
    from notebook_accel.train.checkpoints.contents import StrategyLoad, StrategySave
    from notebook_accel.train.checkpoints.parts import Part


class ShardedStrategy(Strategy):
    """Weights are DTensors; all ranks write a checkpoint, and any number of ranks can read it."""

    keeps_parameters = False

    def __init__(self, state: PartialState, settings: Settings) -> None:
        super().__init__(state, settings)
        self._local: set[int] = set()
        """IDs of the models whose gradient synchronization is disabled, which FSDP2 does not tell."""

    def set_gradient_sync(self, model: nn.Module, enabled: bool) -> bool:
        before = id(model) not in self._local
        if isinstance(model, FSDPModule) and enabled != before:
            model.set_requires_gradient_sync(enabled)
        (self._local.discard if enabled else self._local.add)(id(model))
        return before

    @property
    def _unaveraged(self) -> Ranks:
        return self.sharing.results

    def join(self, models: Sequence[nn.Module]) -> AbstractContextManager[Any]:
        raise ConfigurationError(
            "join_uneven_inputs does not work with sharded weights, because every layer needs every rank. Leave "
            "it out, and keep even_batches=True."
        )

    def state_dict(self, model: nn.Module) -> StateDict:
        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        return get_model_state_dict(model, options=options)  # type: ignore[return-value]

    @property
    def gathers_weights(self) -> bool:
        return True

    def checkpoint_weights(self, models: Sequence[nn.Module]) -> list[StateDict]:
        return []

    def checkpoint_parts(self, save: StrategySave) -> list[Part]:
        from notebook_accel.train.checkpoints.layouts import sharded

        return sharded.parts(save.models, save.optimizers, save.options.group)

    @property
    def writes_together(self) -> bool:
        return True

    def load_checkpoint(self, load: StrategyLoad) -> None:
        from notebook_accel.train.checkpoints.layouts import sharded

        sharded.load(load.folder, load.models, load.optimizers, strict=load.options.strict)
