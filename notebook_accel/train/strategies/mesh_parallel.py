"""Several dimensions together, on one device mesh: replicas, FSDP2's shards, layers split over ranks."""

from __future__ import annotations

from collections.abc import Sequence, Set
from contextlib import AbstractContextManager
from dataclasses import replace

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import parallelize_module
from torch.optim import Optimizer

from notebook_accel.errors import ConfigurationError
from notebook_accel.train.options.enums import DistributedType
from notebook_accel.train.options.fsdp import FullyShardedDataParallelPlugin
from notebook_accel.train.options.parallelism import ParallelismConfig, part
from notebook_accel.train.ranks.state import PartialState
from notebook_accel.train.strategies import context_parallel, layer_plans
from notebook_accel.train.strategies.base import Settings
from notebook_accel.train.strategies.fsdp import FullySharded


class MeshParallel(FullySharded):
    """Models on the mesh of a `ParallelismConfig`, of which at least one dimension is not that of replicas."""

    mesh: DeviceMesh

    def __init__(self, state: PartialState, settings: Settings) -> None:
        assert settings.parallelism is not None
        self.config: ParallelismConfig = settings.parallelism
        plugin = settings.fsdp or FullyShardedDataParallelPlugin()
        if plugin.hybrid:
            raise ConfigurationError(
                "sharding_strategy='HYBRID_SHARD' contradicts parallelism_config, which says over how many ranks to "
                "shard: leave it out, and set dp_replicate_size and dp_shard_size"
            )
        super().__init__(state, replace(settings, fsdp=plugin))

    @property
    def distributed_type(self) -> DistributedType:
        return DistributedType.FSDP if self._has_shards else self.state.distributed_type

    def _mesh(self) -> DeviceMesh:
        mesh = self.config.get_device_mesh(self.state.device.type)
        assert mesh is not None
        return mesh

    @property
    def _has_shards(self) -> bool:
        return not {"dp_shard", "cp"}.isdisjoint(self.mesh.mesh_dim_names or ())

    @property
    def _shard_mesh(self) -> DeviceMesh | None:
        return part(self.mesh, *self.config.fsdp_dim_names) if self._has_shards else None

    def to_device(self, model: nn.Module) -> nn.Module:
        return super().to_device(model) if self._has_shards else model.to(self.state.device)

    def prepare(self, models: Sequence[nn.Module], optimizers: Sequence[Optimizer]) -> list[nn.Module]:
        prepared = super().prepare(models, optimizers)
        layer_plans.allow_different_meshes(optimizers)
        return prepared

    @property
    def _splits_layers(self) -> bool:
        return self.config.tp_handler is not None or self._shard_mesh is None

    def _split_layers(self, model: nn.Module) -> None:
        handler = self.config.tp_handler
        if handler is not None and not _is_split(model):
            parallelize_module(model, self.mesh["tp"], layer_plans.of(model, handler.plan))

    def share_sequences(
        self, buffers: Sequence[torch.Tensor], dims: Sequence[int], no_restore: Set[torch.Tensor]
    ) -> AbstractContextManager[None]:
        handler = self.config.cp_handler
        if handler is None:
            return super().share_sequences(buffers, dims, no_restore)
        return context_parallel.sharing(self.mesh["cp"], str(handler.cp_comm_strategy), buffers, dims, no_restore)

    def is_prepared(self, model: nn.Module) -> bool:
        return super().is_prepared(model) if self._has_shards else _is_split(model)


def _is_split(model: nn.Module) -> bool:
    """Whether layers are split already, such as by transformers' `from_pretrained(tp_plan=...)`."""
    return any(isinstance(parameter, DTensor) for parameter in model.parameters())
