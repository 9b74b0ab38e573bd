"""State that all parts of a training run share: this rank's membership in the group, and its precision and plugins."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from notebook_accel import advice, events, rank_local
from notebook_accel.errors import ConfigurationError
from notebook_accel.train.options.enums import DistributedType, DynamoBackend, PrecisionType
from notebook_accel.train.options.fsdp import FullyShardedDataParallelPlugin
from notebook_accel.train.options.parallelism import ParallelismConfig
from notebook_accel.train.options.plugins import TorchDynamoPlugin, TorchTensorParallelPlugin
from notebook_accel.train.ranks import collective_check, environment, process_group
from notebook_accel.train.ranks.communicator import Communicator, communicator_of
from notebook_accel.train.ranks.mesh import REPLICAS, Mesh, Ranks, SampleSharing
from notebook_accel.train.ranks.process_group import Membership
from notebook_accel.train.ranks.rank_aware import OneOfRank, RankAware


class PartialState(OneOfRank, RankAware):
    """This rank's number, device and process group. The first instance joins the group; later ones are the same object.

    Args:
        cpu: Whether to use the CPU even if there are accelerators.
        kwargs: Arguments of `torch.distributed.init_process_group`, such as `backend` and `timeout`.

    Raises:
        ConfigurationError: There is a state already, with other settings.
    """

    _key = f"{__name__}.partial"
    membership: Membership
    debug: bool
    """Whether ranks compare what they call, and with which tensors, before each collective (`collective_check.py`)."""

    def __new__(cls, cpu: bool = False, **kwargs: Any) -> PartialState:
        state = PartialState.settled()
        if state is None or state._has_left():
            state = super().__new__(cls)
            state.membership = process_group.join(environment.read(), cpu, kwargs)
            state.debug = state.membership.debug
            rank_local.space()[cls._key] = state
        elif cpu and state.device.type != "cpu":
            raise ConfigurationError(
                f"cpu=True was requested, but this process already uses {state.device}: pass cpu=True the "
                "first time, before anything else is created, or call PartialState._reset_state()"
            )
        return state

    def __reduce__(self) -> tuple[type[PartialState], tuple[()]]:
        return PartialState, ()

    def _has_left(self) -> bool:
        """Whether the user's code has destroyed the process group."""
        return self.backend not in (None, "xla") and not dist.is_initialized()

    @property
    def _membership(self) -> Membership:
        return self.membership

    @property
    def default_device(self) -> torch.device:
        """The same as `device`."""
        return self.device

    @property
    def backend(self) -> str | None:
        """`gloo`, `nccl` or `xla`; `None` for a single rank without a group."""
        return self.membership.backend

    @property
    def local_num_processes(self) -> int:
        """The number of ranks on this node."""
        return self.membership.local_world_size

    @property
    def distributed_type(self) -> DistributedType:
        """The type that follows from backend and device; a strategy may replace it in `AcceleratorState`."""
        if self.backend == "xla":
            return DistributedType.XLA
        if not self.use_distributed:
            return DistributedType.NO
        return DistributedType.MULTI_GPU if self.device.type == "cuda" else DistributedType.MULTI_CPU

    @property
    def fork_launched(self) -> bool:
        """Whether a launch from a notebook or a script, or a watched command, started this rank."""
        return events.has_sink()

    @property
    def communicator(self) -> Communicator:
        """How ranks exchange tensors and bytes."""
        return communicator_of(self.backend, self.device)

    def wait_for_everyone(self) -> None:
        """Waits until all ranks have reached this call."""
        if self.use_distributed:
            self.compare_calls("wait_for_everyone")
            self.communicator.barrier()

    def compare_calls(self, operation: str, data: Any = (), group: Any = None, sizes: bool = True) -> None:
        """In debug mode, checks that several ranks are about to make the same call; see `collective_check.compare`."""
        if self.debug:
            collective_check.compare(self.communicator, operation, data, group, sizes)

    def destroy_process_group(self, group: Any = None) -> None:
        """Leaves the process group, if there is one."""
        if dist.is_available() and dist.is_initialized():
            dist.destroy_process_group(group)

    def __repr__(self) -> str:
        backend = f"  Backend: {self.backend}" if self.backend else ""
        return (
            f"Distributed environment: {self.distributed_type.value}{backend}\n"
            f"Num processes: {self.num_processes}\n"
            f"Process index: {self.process_index}\n"
            f"Local process index: {self.local_process_index}\n"
            f"Device: {self.device}\n"
        )


class AcceleratorState(OneOfRank, RankAware):
    """This rank's `PartialState`, precision and plugins. The first `Accelerator` creates it; others share it.

    Raises:
        ConfigurationError: There is a state already, with other settings; the message shows both. Or a plugin belongs
            to a strategy that this package does not have.
    """

    _key = f"{__name__}.whole"
    partial: PartialState
    mixed_precision: str
    dynamo_plugin: TorchDynamoPlugin
    fsdp_plugin: FullyShardedDataParallelPlugin | None
    torch_tp_plugin: TorchTensorParallelPlugin | None
    parallelism_config: ParallelismConfig | None
    distributed_type: DistributedType
    """That of `PartialState`, until an `Accelerator` has chosen a strategy, such as FSDP."""
    sharing: SampleSharing
    """How ranks share the samples: each gets different ones, until an `Accelerator` has chosen a strategy."""

    def __new__(
        cls,
        mixed_precision: str | None = None,
        cpu: bool = False,
        dynamo_plugin: TorchDynamoPlugin | None = None,
        deepspeed_plugin: Any = None,
        fsdp_plugin: FullyShardedDataParallelPlugin | None = None,
        torch_tp_plugin: TorchTensorParallelPlugin | None = None,
        megatron_lm_plugin: Any = None,
        parallelism_config: ParallelismConfig | None = None,
        **kwargs: Any,
    ) -> AcceleratorState:
        advice.refuse("AcceleratorState", deepspeed_plugin=deepspeed_plugin)
        advice.refuse("Accelerator", megatron_lm_plugin=megatron_lm_plugin)
        if mixed_precision is not None:
            mixed_precision = PrecisionType.of(mixed_precision, "mixed_precision").value
        partial = PartialState(cpu, **kwargs)
        dynamo_plugin = None if dynamo_plugin is None else compiled_as_launched(dynamo_plugin)
        if parallelism_config is not None:
            parallelism_config.fill(partial.num_processes)
        given = {
            "mixed_precision": mixed_precision,
            "dynamo_plugin": dynamo_plugin,
            "fsdp_plugin": fsdp_plugin,
            "torch_tp_plugin": torch_tp_plugin,
            "parallelism_config": parallelism_config,
        }
        state = cls.settled()
        if state is None or state.partial is not partial:
            state = super().__new__(cls)
            defaults = environment.read()
            state.partial = partial
            state.mixed_precision = mixed_precision or defaults.mixed_precision
            state.dynamo_plugin = dynamo_plugin or compiled_as_launched(TorchDynamoPlugin())
            state.fsdp_plugin = fsdp_plugin
            if fsdp_plugin is None and torch_tp_plugin is None and defaults.fsdp is not None:
                state.fsdp_plugin = FullyShardedDataParallelPlugin.of_environment(defaults.fsdp)
            state.torch_tp_plugin = torch_tp_plugin
            state.parallelism_config = parallelism_config
            if parallelism_config is None and torch_tp_plugin is None and defaults.parallelism:
                state.parallelism_config = ParallelismConfig()
            state._follow(REPLICAS, SampleSharing.of(None, partial.process_index, partial.num_processes))
            rank_local.space()[cls._key] = state
        else:
            state._refuse_conflict(given)
        return state

    def _follow(self, mesh: Mesh, sharing: SampleSharing) -> None:
        """Makes the ranks work together as a mesh says, and share samples so."""
        self.distributed_type = mesh.distributed_type or self.partial.distributed_type
        self.sharing = sharing

    def _refuse_conflict(self, given: dict[str, Any]) -> None:
        for name, value in given.items():
            settled = getattr(self, name)
            if value is not None and value != settled:
                raise ConfigurationError(
                    f"{name}={value!r} was requested, but this process already has an Accelerator with "
                    f"{name}={settled!r}, and all share one state: leave it out, give both the same, or "
                    "end the first with its end_training()"
                )

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self.mixed_precision, self.dynamo_plugin, self.fsdp_plugin, self.distributed_type)

    @classmethod
    def _reset_state(cls, reset_partial_state: bool = False) -> None:
        """Drops this state, and with `reset_partial_state` the `PartialState` too."""
        super()._reset_state()
        if reset_partial_state:
            PartialState._reset_state()

    @property
    def _membership(self) -> Membership:
        return self.partial.membership

    @property
    def backend(self) -> str | None:
        """As in `PartialState`."""
        return self.partial.backend

    @property
    def debug(self) -> bool:
        """As in `PartialState`."""
        return self.partial.debug

    @debug.setter
    def debug(self, value: bool) -> None:
        self.partial.debug = value

    @property
    def _data_ranks(self) -> Ranks:
        return self.sharing.data

    @property
    def deepspeed_plugin(self) -> None:
        """Always `None`, because FSDP2 trains; libraries that support DeepSpeed read it."""
        return

    @property
    def fork_launched(self) -> bool:
        """As in `PartialState`."""
        return self.partial.fork_launched

    @property
    def megatron_lm_plugin(self) -> None:
        """Always `None`; libraries that support Megatron-LM read it."""
        return

    @property
    def is_fsdp2(self) -> bool:
        """Whether models are sharded by FSDP2."""
        return self.distributed_type is DistributedType.FSDP

    def wait_for_everyone(self) -> None:
        """As in `PartialState`."""
        self.partial.wait_for_everyone()

    def destroy_process_group(self, group: Any = None) -> None:
        """Leaves the process group, if there is one."""
        self.partial.destroy_process_group(group)

    def __repr__(self) -> str:
        lines = repr(self.partial).partition("\n")[2]
        backend = f"  Backend: {self.backend}" if self.backend else ""
        kind = f"Distributed environment: {self.distributed_type.value}{backend}\n"
        return f"{kind}{lines}Mixed precision type: {self.mixed_precision}\n"


def compiled_as_launched(plugin: TorchDynamoPlugin) -> TorchDynamoPlugin:
    """The plugin with what the launch says in place of the fields that it leaves out."""
    defaults = environment.read()
    return plugin.filled(
        backend=defaults.compile_backend or DynamoBackend.NO,
        mode=defaults.compile_mode,
        fullgraph=defaults.compile_fullgraph,
        dynamic=defaults.compile_dynamic,
        use_regional_compilation=defaults.compile_regions,
    )


def is_initialized() -> bool:
    """Whether this process has an `AcceleratorState`."""
    return AcceleratorState.settled() is not None


def wait_for_everyone() -> None:
    """Waits until all ranks have reached this call."""
    PartialState().wait_for_everyone()


def _restore(precision: str, dynamo: Any, fsdp: Any, distributed_type: DistributedType) -> AcceleratorState:
    """Unpickles a state: the one of this process if it exists, otherwise a new one with the same settings."""
    state = AcceleratorState.settled()
    if state is None:
        state = AcceleratorState(precision, dynamo_plugin=dynamo, fsdp_plugin=fsdp)
        state.distributed_type = distributed_type
    return state
