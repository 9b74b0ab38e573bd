"""Models on a mesh of ranks: sharded by torch's FSDP2 (`fully_shard`), with layers and sequences split over ranks."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence, Set
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import parallelize_module
from torch.optim import Optimizer

from notebook_accel.errors import ConfigurationError
from notebook_accel.train.models import compiling
from notebook_accel.train.options.enums import DistributedType
from notebook_accel.train.options.fsdp import FullyShardedDataParallelPlugin
from notebook_accel.train.options.parallelism import ParallelismConfig, TorchTensorParallelConfig, device_mesh, part
from notebook_accel.train.ranks.collectives import broadcast_object_list
from notebook_accel.train.ranks.logging import get_logger
from notebook_accel.train.ranks.mesh import Ranks
from notebook_accel.train.ranks.state import PartialState
from notebook_accel.train.strategies import context_parallel, layer_plans, wrapping
from notebook_accel.train.strategies.base import Settings, StateDict, Strategy
from notebook_accel.train.strategies.parameters import (
    allocate_on_cpu,
    broadcast_initial_state,
    equalize_replicas,
    optimizers_following,
)

_log = get_logger(__name__)
PRECISIONS = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp8": torch.bfloat16}


class FullySharded(Strategy):
    """Sharded models, whose weights are DTensors; a layer's parameters are gathered only while it computes.

    Saving and stepping need all ranks, and any number of ranks can read a checkpoint.
    """

    plugin: FullyShardedDataParallelPlugin
    keeps_parameters = False

    def __init__(self, state: PartialState, settings: Settings) -> None:
        super().__init__(state, settings)
        assert settings.fsdp is not None
        self.plugin = settings.fsdp
        state.require_group()
        if self.plugin.cpu_ram_efficient_loading is not None:  # from_pretrained of transformers reads both
            os.environ["ACCELERATE_USE_FSDP"] = "true"
            os.environ["FSDP_CPU_RAM_EFFICIENT_LOADING"] = str(self.plugin.cpu_ram_efficient_loading).lower()
        self.mesh = self._mesh()

    @property
    def distributed_type(self) -> DistributedType:
        return DistributedType.FSDP

    def _mesh(self) -> DeviceMesh:
        size, local_size = self.state.num_processes, self.state.local_num_processes
        if self.plugin.hybrid:
            return device_mesh(self.state.device.type, {"replicate": size // local_size, "shard": local_size})
        return device_mesh(self.state.device.type, {"shard": size})

    @property
    def _shard_mesh(self) -> DeviceMesh | None:
        """The mesh that models are sharded over; `None` for none."""
        return self.mesh

    @property
    def _splits_layers(self) -> bool:
        """Whether `_split_layers` may change a model."""
        return False

    def _split_layers(self, model: nn.Module) -> None:
        """Splits layers over ranks, before the model is sharded."""

    def to_device(self, model: nn.Module) -> nn.Module:
        """Leaves the model where it is, since it may not fit on one device; it is moved to the devices in shards."""
        return model

    def prepare(self, models: Sequence[nn.Module], optimizers: Sequence[Optimizer]) -> list[nn.Module]:
        with optimizers_following(optimizers, models):
            for model in models:
                self._shard(model)
        return list(models)

    def _shard(self, model: nn.Module) -> None:
        layers = wrapping.layers(model, self.plugin)
        ignored = wrapping.ignored(model, self.plugin)
        on_meta = self._is_on_meta(model)
        # Otherwise, all layers at once: those that are split need the same values on all ranks before.
        one_by_one = bool(self.plugin.cpu_ram_efficient_loading) and not self._splits_layers
        if not on_meta and not one_by_one:
            self._copy_from_rank_0(model)
        self._split_layers(model)
        if self.plugin.activation_checkpointing:
            layers = wrapping.recompute(model, layers, offload=bool(self.plugin.activation_checkpointing_offload))
        if (mesh := self._shard_mesh) is not None:
            for module in (*wrapping.with_own_parameters(model, layers), model):
                if not on_meta and one_by_one:
                    self._copy_from_rank_0(module)
                # Asked anew for each, since copying replaces the parameters that are on the meta device.
                sharded = fully_shard(module, mesh=mesh, **self._arguments(ignored))
                if mesh.device_type == "cpu":
                    # gloo's reduce-scatter adds where it is asked for the average, until torch 2.9.
                    sharded.set_force_sum_reduction_for_comms(True)
        if on_meta:
            wrapping.materialise(model, self._parameter_device(), self.plugin.param_init_fn)
            if self.state.num_processes > 1:
                with torch.no_grad():
                    equalize_replicas(model)
        else:
            for module in ignored:
                module.to(self.state.device)  # fully_shard moves only what it shards
        self._warn_of_drifting(model, ignored)

    def _is_on_meta(self, model: nn.Module) -> bool:
        """Whether the model has no weights yet: on rank 0, if the others get theirs from it."""
        on_meta = any(parameter.is_meta for parameter in model.parameters())
        if not self.plugin.cpu_ram_efficient_loading or self.state.num_processes == 1:
            return on_meta
        return bool(broadcast_object_list([on_meta])[0])

    def _copy_from_rank_0(self, module: nn.Module) -> None:
        if self.state.num_processes == 1:
            return
        if self.plugin.cpu_ram_efficient_loading:
            allocate_on_cpu(module)
        with torch.no_grad():
            broadcast_initial_state(module)

    def _parameter_device(self) -> torch.device:
        return torch.device("cpu") if self.plugin.offload else self.state.device

    def _arguments(self, ignored: Iterable[nn.Module]) -> dict[str, Any]:
        return {
            "reshard_after_forward": self.plugin.reshard_after_forward,
            "mp_policy": self._precision(),
            "offload_policy": self._offload(),
            "ignored_params": {parameter for module in ignored for parameter in module.parameters()},
        }

    def _warn_of_drifting(self, model: nn.Module, ignored: Iterable[nn.Module]) -> None:
        """Warns of ignored parameters that are trained. No error, since ranks may have experts of their own."""
        kept = {parameter for module in ignored for parameter in module.parameters() if parameter.requires_grad}
        names = [name for name, parameter in model.named_parameters() if parameter in kept]
        if names and self.state.num_processes > 1:
            _log.warning(
                "ignored_modules: nothing averages the gradients of %s over the ranks, so each rank trains its own. "
                "Freeze them with requires_grad_(False), or leave them out of ignored_modules.",
                ", ".join(names[:4]) + (", ..." if len(names) > 4 else ""),
            )

    def _offload(self) -> OffloadPolicy:
        if isinstance(self.plugin.offload, OffloadPolicy):
            return self.plugin.offload
        # Pinned memory only speeds up copies to a GPU.
        return CPUOffloadPolicy(pin_memory=self.state.device.type == "cuda") if self.plugin.offload else OffloadPolicy()

    def _precision(self) -> MixedPrecisionPolicy:
        """The policy: computes in the low precision, and reduces gradients and returns outputs in float32."""
        policy = self.plugin.mixed_precision_policy
        if isinstance(policy, MixedPrecisionPolicy):
            return policy
        if isinstance(policy, Mapping):
            return MixedPrecisionPolicy(**policy)
        if policy is not None and not isinstance(policy, str):  # FSDP1's
            return MixedPrecisionPolicy(param_dtype=policy.param_dtype, reduce_dtype=policy.reduce_dtype)
        dtype = PRECISIONS.get(policy or self.settings.mixed_precision)
        if dtype is None:
            return MixedPrecisionPolicy()
        return MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32, output_dtype=torch.float32)

    def set_gradient_sync(self, model: nn.Module, enabled: bool) -> bool:
        before = super().set_gradient_sync(model, enabled)
        if isinstance(model, FSDPModule) and enabled != before:
            model.set_requires_gradient_sync(enabled)
        return before

    @property
    def _unaveraged(self) -> Ranks:
        return self.sharing.results

    def join(self, models: Sequence[nn.Module]) -> AbstractContextManager[Any]:
        raise ConfigurationError(
            "join_uneven_inputs does not work with sharded weights, because every layer needs every rank. Leave "
            "it out, and keep even_batches=True."
        )

    def synchronizes(self, models: Sequence[nn.Module]) -> bool:
        return self.state.num_processes > 1 and any(id(compiling.inner(model)) not in self._local for model in models)

    def is_prepared(self, model: nn.Module) -> bool:
        return isinstance(model, FSDPModule)

    # Saving

    def state_dict(self, model: nn.Module) -> StateDict:
        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        return get_model_state_dict(model, options=options)  # type: ignore[return-value]

    @property
    def gathers_weights(self) -> bool:
        return True

    @property
    def layout(self) -> str:
        return "gathered" if self.plugin.state_dict_type == "FULL_STATE_DICT" else "sharded"


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
