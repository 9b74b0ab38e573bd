"""Layers split over `tp_size` ranks as a `TorchTensorParallelPlugin` says, and shards over several such groups."""

from __future__ import annotations

from dataclasses import replace

from torch.distributed.device_mesh import DeviceMesh

from notebook_accel.errors import ConfigurationError
from notebook_accel.train.options.enums import DistributedType
from notebook_accel.train.options.parallelism import ParallelismConfig, TorchTensorParallelConfig, device_mesh
from notebook_accel.train.ranks.state import PartialState
from notebook_accel.train.strategies.base import Settings
from notebook_accel.train.strategies.mesh_parallel import MeshParallel


class TensorParallel(MeshParallel):
    """The dimensions `dp` and `tp`, which the plugin names instead of a `ParallelismConfig`."""

    def __init__(self, state: PartialState, settings: Settings) -> None:
        assert settings.tensor_parallel is not None
        self._tensor_parallel = settings.tensor_parallel
        size, tp_size = state.num_processes, settings.tensor_parallel.tp_size
        if not settings.tensor_parallel.plan:
            raise ConfigurationError(
                "tensor parallel needs a plan: TorchTensorParallelPlugin(tp_size=2, plan={'layers.*.up': 'colwise', "
                "...}), by the names of the model's submodules"
            )
        if settings.fsdp is not None:
            raise ConfigurationError(
                "fsdp_plugin has no effect with torch_tp_plugin: if there are more than tp_size ranks, FSDP2 is used "
                "anyway. Leave it out."
            )
        if size % tp_size:
            raise ConfigurationError(
                f"tp_size={tp_size} does not divide the {size} ranks: launch a multiple of it, or change it"
            )
        handler = TorchTensorParallelConfig(plan=settings.tensor_parallel.plan) if tp_size > 1 else None
        config = ParallelismConfig(1, size // tp_size, tp_size, cp_size=1, sp_size=1, tp_handler=handler)
        super().__init__(state, replace(settings, parallelism=config))

    @property
    def distributed_type(self) -> DistributedType:
        return DistributedType.TP

    def _mesh(self) -> DeviceMesh:
        size, tp_size = self.state.num_processes, self._tensor_parallel.tp_size
        mesh = self._tensor_parallel.torch_device_mesh
        if mesh is None:
            return device_mesh(self.state.device.type, {"dp": size // tp_size, "tp": tp_size})
        if mesh.mesh_dim_names != ("dp", "tp") or mesh["tp"].size() != tp_size:
            raise ConfigurationError(
                f"torch_device_mesh must have the dimensions ('dp', 'tp'), the second of size tp_size={tp_size}; "
                f"it has {mesh.mesh_dim_names} of sizes {tuple(mesh.mesh.shape)}"
            )
        return mesh

    @property
    def _has_shards(self) -> bool:
        return self.mesh["dp"].size() > 1

    @property
    def _shard_mesh(self) -> DeviceMesh | None:
        return self.mesh["dp"] if self._has_shards else None
