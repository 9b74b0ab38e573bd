"""Splits layers over `tp_size` ranks with torch's `parallelize_module`; uses FSDP2 across several such groups."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import parallelize_module
from torch.optim import Optimizer

from notebook_accel.errors import ConfigurationError
from notebook_accel.train.options.enums import DistributedType
from notebook_accel.train.options.plugins import TorchTensorParallelPlugin
from notebook_accel.train.ranks.state import PartialState
from notebook_accel.train.strategies import layer_plans
from notebook_accel.train.strategies.base import Settings
from notebook_accel.train.strategies.parameters import broadcast_initial_state, optimizers_following
from notebook_accel.train.strategies.sharded_states import ShardedStrategy
from notebook_accel.train.tensors.shards import whole


class TensorParallel(ShardedStrategy):
    """Each layer of the plan is split over the ranks of a group, which all get the same samples."""

    plugin: TorchTensorParallelPlugin
    mesh: DeviceMesh

    def __init__(self, state: PartialState, settings: Settings) -> None:
        super().__init__(state, settings)
        assert settings.tensor_parallel is not None
        self.plugin = settings.tensor_parallel
        if not self.plugin.plan:
            raise ConfigurationError(
                "tensor parallel needs a plan: TorchTensorParallelPlugin(tp_size=2, plan={'layers.0': "
                "ColwiseParallel(), ...}), by the names of the model's submodules"
            )
        if settings.fsdp is not None:
            raise ConfigurationError(
                "fsdp_plugin has no effect with torch_tp_plugin: if there are more than tp_size ranks, FSDP2 is used "
                "anyway. Leave it out."
            )
        state.require_group()
        self.mesh = self._mesh()

    @property
    def distributed_type(self) -> DistributedType:
        return DistributedType.TP

    def _mesh(self) -> DeviceMesh:
        size, tp_size = self.state.num_processes, self.plugin.tp_size
        if self.plugin.torch_device_mesh is not None:
            mesh = self.plugin.torch_device_mesh
            if mesh.mesh_dim_names != ("dp", "tp") or mesh["tp"].size() != tp_size:
                raise ConfigurationError(
                    f"torch_device_mesh must have the dimensions ('dp', 'tp'), the second of size tp_size={tp_size}; "
                    f"it has {mesh.mesh_dim_names} of sizes {tuple(mesh.mesh.shape)}"
                )
            return mesh
        if size % tp_size:
            raise ConfigurationError(
                f"tp_size={tp_size} does not divide the {size} ranks: launch a multiple of it, or change it"
            )
        return init_device_mesh(self.state.device.type, (size // tp_size, tp_size), mesh_dim_names=("dp", "tp"))

    def prepare(self, models: Sequence[nn.Module], optimizers: Sequence[Optimizer]) -> list[nn.Module]:
        with optimizers_following(optimizers, models):
            for model in models:
                with torch.no_grad():
                    broadcast_initial_state(model)
                layer_plans.check([name for name, _ in model.named_modules()], self.plugin.plan or ())
                parallelize_module(model, self.mesh["tp"], self.plugin.plan)
                if self.mesh["dp"].size() > 1:
                    fully_shard(model, mesh=self.mesh["dp"])
        layer_plans.allow_different_meshes(optimizers)
        return list(models)

    def is_prepared(self, model: nn.Module) -> bool:
        return any(isinstance(parameter, DTensor) for parameter in model.parameters())

    def clip_grad_norm_(self, parameters: Iterable[torch.Tensor], max_norm: float, norm_type: float) -> torch.Tensor:
        # torch's function requires all gradients on one mesh, but those of layers outside the plan are on none.
        gradients = [each.grad for each in parameters if each.grad is not None]
        norms = [whole(torch.linalg.vector_norm(gradient, norm_type)) for gradient in gradients]
        total = torch.linalg.vector_norm(torch.stack(norms), norm_type) if norms else torch.tensor(0.0)
        factor = torch.clamp(max_norm / (total + 1e-6), max=1.0).item()
        for gradient in gradients:
            gradient.mul_(factor)
        return total
