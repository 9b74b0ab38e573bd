"""Models on a mesh of ranks: sharded by torch's FSDP2 (`fully_shard`), with layers and sequences split over ranks."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence, Set
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import parallelize_module
from torch.optim import Optimizer

from notebook_accel.errors import ConfigurationError
from notebook_accel.train.models import compiling
from notebook_accel.train.options.fsdp import FullyShardedDataParallelPlugin
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


class MeshParallel(Strategy):
    """Models of which each rank has parts, as DTensors: of layers that are split, and of parameters that are sharded.

    FSDP2 gathers a layer's parameters only while it computes. Saving and stepping need all ranks, and any number of
    ranks can read a checkpoint.
    """

    keeps_parameters = False
    gathers_weights = True

    def __init__(self, state: PartialState, settings: Settings) -> None:
        super().__init__(state, settings)
        self.plugin = settings.fsdp or FullyShardedDataParallelPlugin()
        if self.plugin.cpu_ram_efficient_loading is not None:  # from_pretrained of transformers reads both
            os.environ["ACCELERATE_USE_FSDP"] = "true"
            os.environ["FSDP_CPU_RAM_EFFICIENT_LOADING"] = str(self.plugin.cpu_ram_efficient_loading).lower()

    def to_device(self, model: nn.Module) -> nn.Module:
        """Leaves a model that will be sharded where it is, since it may not fit on one device."""
        return super().to_device(model) if self.mesh.shards is None else model

    def prepare(self, models: Sequence[nn.Module], optimizers: Sequence[Optimizer]) -> list[nn.Module]:
        with optimizers_following(optimizers, models):
            for model in models:
                self._distribute(model)
        layer_plans.allow_different_meshes(optimizers)
        return list(models)

    def replicated(self, models: Sequence[nn.Module]) -> dict[str, nn.Parameter] | None:
        return {}  # only the options: each rank has its own part of the parameters

    def _distribute(self, model: nn.Module) -> None:
        layers = wrapping.layers(model, self.plugin)
        ignored = wrapping.ignored(model, self.plugin)
        on_meta = self._is_on_meta(model)
        # Otherwise, all layers at once: those that are split need the same values on all ranks before.
        one_by_one = bool(self.plugin.cpu_ram_efficient_loading) and self.mesh.layers is None
        if not on_meta and not one_by_one:
            self._copy_from_rank_0(model)
        if self.mesh.layers is not None and not _is_split(model):
            parallelize_module(model, self.mesh.along("tp"), layer_plans.of(model, self.mesh.layers.plan))
        if self.plugin.activation_checkpointing:
            layers = wrapping.recompute(model, layers, offload=bool(self.plugin.activation_checkpointing_offload))
        if (mesh := self.mesh.shards) is not None:
            groups = [*wrapping.with_own_parameters(model, layers), model]
            wrapping.check_types(groups, ignored)
            for module in groups:
                if not on_meta and one_by_one:
                    self._copy_from_rank_0(module)
                # Asked for each, since copying replaces the parameters that are on the meta device.
                sharded = fully_shard(module, mesh=mesh, **self._arguments(ignored))
                if mesh.device_type == "cpu":
                    # gloo's reduce-scatter adds where it is asked for the average, until torch 2.9.
                    sharded.set_force_sum_reduction_for_comms(True)
        if on_meta:
            wrapping.materialise(model, self._parameter_device(), self.plugin.param_init_fn)
            if self.state.num_processes > 1:
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
        return _is_split(model) if self.mesh.shards is None else isinstance(model, FSDPModule)

    def share_sequences(
        self, buffers: Sequence[torch.Tensor], dims: Sequence[int], no_restore: Set[torch.Tensor]
    ) -> AbstractContextManager[None]:
        handler = self.mesh.sequences
        if handler is None:
            return super().share_sequences(buffers, dims, no_restore)
        return context_parallel.sharing(self.mesh.along("cp"), str(handler.cp_comm_strategy), buffers, dims, no_restore)

    # Saving

    def state_dict(self, model: nn.Module) -> StateDict:
        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        return get_model_state_dict(model, options=options)  # type: ignore[return-value]

    @property
    def layout(self) -> str:
        return "gathered" if self.plugin.state_dict_type == "FULL_STATE_DICT" else "sharded"


def _is_split(model: nn.Module) -> bool:
    """Whether layers are split already, such as by transformers' `from_pretrained(tp_plan=...)`."""
    return any(isinstance(parameter, DTensor) for parameter in model.parameters())
