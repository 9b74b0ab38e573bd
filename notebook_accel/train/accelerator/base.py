"""The constructor of `Accelerator`: it checks the arguments once, and builds the parts that the methods delegate to."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils.data import DataLoader

from notebook_accel.config.unknown_arguments.explained import explained
from notebook_accel.errors import ConfigurationError
from notebook_accel.train import step_timing
from notebook_accel.train.accelerator import argument_advice, arguments
from notebook_accel.train.checkpoints.checkpoint import Checkpoints
from notebook_accel.train.models.precision import Precision
from notebook_accel.train.options import unavailable
from notebook_accel.train.options.enums import (
    DistributedType,
    DynamoBackend,
    FP8BackendType,
    LoggerType,
    PrecisionType,
    RNGType,
)
from notebook_accel.train.options.fsdp import FullyShardedDataParallelPlugin
from notebook_accel.train.options.parallelism import ParallelismConfig
from notebook_accel.train.options.plugins import (
    AORecipeKwargs,
    AutocastKwargs,
    DataLoaderConfiguration,
    DistributedDataParallelKwargs,
    GradientAccumulationPlugin,
    GradScalerKwargs,
    InitProcessGroupKwargs,
    KwargsHandler,
    ProfileKwargs,
    ProjectConfiguration,
    TorchDynamoPlugin,
    TorchTensorParallelPlugin,
)
from notebook_accel.train.ranks.gradient_state import GradientState
from notebook_accel.train.ranks.rank_aware import RankAware
from notebook_accel.train.ranks.sample_sharing import Ranks
from notebook_accel.train.ranks.seeds import share_random_states
from notebook_accel.train.ranks.state import AcceleratorState, is_initialized
from notebook_accel.train.steps.accumulation import Accumulation
from notebook_accel.train.steps.checks import DeviceWatch, FirstBackward
from notebook_accel.train.steps.optimizer import AcceleratedOptimizer
from notebook_accel.train.steps.scheduler import AcceleratedScheduler
from notebook_accel.train.steps.tunables import Tunables
from notebook_accel.train.strategies import choose
from notebook_accel.train.strategies.base import Settings
from notebook_accel.train.trackers import GeneralTracker, TrackerGroup

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


class AcceleratorBase(RankAware):
    """The settings and parts of an `Accelerator`, whose docstring documents the arguments."""

    @explained(argument_advice.advice)
    def __init__(
        self,
        device_placement: bool = True,
        split_batches: bool | None = None,
        mixed_precision: PrecisionType | str | None = None,
        gradient_accumulation_steps: int = 1,
        cpu: bool = False,
        dataloader_config: DataLoaderConfiguration | None = None,
        deepspeed_plugin: Any = None,
        fsdp_plugin: FullyShardedDataParallelPlugin | None = None,
        torch_tp_plugin: TorchTensorParallelPlugin | None = None,
        megatron_lm_plugin: Any = None,
        rng_types: Sequence[str | RNGType] | None = None,
        log_with: str | LoggerType | GeneralTracker | Sequence[str | LoggerType | GeneralTracker] | None = None,
        project_dir: str | os.PathLike[str] | None = None,
        project_config: ProjectConfiguration | None = None,
        gradient_accumulation_plugin: GradientAccumulationPlugin | None = None,
        step_scheduler_with_optimizer: bool = True,
        kwargs_handlers: Sequence[KwargsHandler] | None = None,
        dynamo_backend: DynamoBackend | str | None = None,
        dynamo_plugin: TorchDynamoPlugin | None = None,
        deepspeed_plugins: Any = None,
        parallelism_config: ParallelismConfig | None = None,
    ) -> None:
        unavailable.refuse(
            deepspeed_plugin=deepspeed_plugin or deepspeed_plugins,
            megatron_lm_plugin=megatron_lm_plugin,
        )
        handlers = arguments.Handlers(kwargs_handlers or ())
        self.project_configuration = arguments.project(project_config, project_dir)
        self.dataloader_config = arguments.loading(dataloader_config, split_batches)
        accumulation = arguments.accumulation(gradient_accumulation_plugin, gradient_accumulation_steps)
        group_options = handlers.get(InitProcessGroupKwargs)
        with _state_forgotten_on_error():
            self.state = AcceleratorState(
                mixed_precision=None if mixed_precision is None else str(mixed_precision),
                cpu=cpu,
                dynamo_plugin=arguments.compiling(dynamo_plugin, dynamo_backend),
                fsdp_plugin=fsdp_plugin,
                torch_tp_plugin=torch_tp_plugin,
                parallelism_config=arguments.parallelism(parallelism_config, torch_tp_plugin),
                **({} if group_options is None else group_options.to_kwargs()),
            )
            self._precision = _precision(self.state, handlers)
            if self.parallelism_config is not None:
                self.parallelism_config.fit(self.num_processes, has_fsdp_plugin=self.state.fsdp_plugin is not None)
            self.strategy = choose(self.state.partial, _strategy_settings(self.state, handlers))
        arguments.warn_of_no_compiler(dynamo_plugin, self.state.dynamo_plugin)
        arguments.warn_of_other_precision(handlers, self.state.mixed_precision)
        self.state.distributed_type = self.strategy.distributed_type
        self.state.sharing = self.strategy.sharing
        share_random_states(self.state.sharing.peers)
        self.gradient_state = GradientState(accumulation)
        self._made_for = self.num_processes
        """The number of ranks that the strategy was chosen for."""
        self.device_placement = device_placement
        self.step_scheduler_with_optimizer = step_scheduler_with_optimizer
        self.rng_types = [
            RNGType.of(each, "rng_types") for each in (("generator",) if rng_types is None else rng_types)
        ]
        self.ddp_handler = handlers.get(DistributedDataParallelKwargs)
        self.scaler_handler = handlers.get(GradScalerKwargs)
        self.init_handler = group_options
        self.autocast_handler = handlers.get(AutocastKwargs)
        self.profile_handler = handlers.get(ProfileKwargs)
        self.ao_recipe_handler = self._precision.fp8_options if self.has_fp8_handler else None
        """How models are converted to fp8; `None` in another precision."""
        self.fp8_recipe_handler = self.te_recipe_handler = self.msamp_recipe_handler = None
        """Always `None`, because only torchao computes in fp8 here."""
        self.flag_tensor: torch.Tensor | None = None
        self._accumulation = Accumulation(self.strategy, self.gradient_state)
        self._watch = DeviceWatch()
        if (clock := step_timing.of_this_rank(self.device)) is not None:
            self.gradient_state.observers.begin_with(clock)
        self._first_backward = FirstBackward(self.strategy) if self.use_distributed else None
        """`None` after the second backward pass, and on a single rank."""
        self._tracker_group = TrackerGroup(log_with, self.logging_dir)
        self._checkpoints = Checkpoints(self.project_configuration)
        self._has_looped = False
        """Whether a loop over `epochs` has begun that saves checkpoints."""
        self._tunables = Tunables()
        self._models: list[nn.Module] = []
        self._optimizers: list[AcceleratedOptimizer] = []
        self._schedulers: list[AcceleratedScheduler] = []
        self._dataloaders: list[DataLoader[Any]] = []

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self.use_distributed and self.num_processes != self._made_for:
            raise ConfigurationError(
                "this Accelerator was created outside of the launched function, with num_processes="
                f"{self._made_for}, so its models would not be trained by these {self.num_processes} ranks together: "
                "create the Accelerator in the function, and prepare the model, optimizer, and loaders there"
            )

    # The rank

    @property
    def num_processes(self) -> int:
        return self.state.num_processes

    @property
    def process_index(self) -> int:
        return self.state.process_index

    @property
    def local_process_index(self) -> int:
        return self.state.local_process_index

    @property
    def _data_ranks(self) -> Ranks:
        return self.state.sharing.data

    @property
    def device(self) -> torch.device:
        """The device of this rank."""
        return self.state.device

    @property
    def distributed_type(self) -> DistributedType:
        """How the ranks work together, such as `MULTI_GPU` or `FSDP`."""
        return self.state.distributed_type

    @property
    def multi_device(self) -> bool:
        """Whether there is more than one rank."""
        return self.use_distributed

    @property
    def is_fsdp2(self) -> bool:
        """Whether models are sharded with FSDP2."""
        return self.state.is_fsdp2

    @property
    def is_composable_parallelism_enabled(self) -> bool:
        """The same as `is_fsdp2`."""
        return self.is_fsdp2

    @property
    def deepspeed_plugin(self) -> None:
        """Always `None`; libraries that support DeepSpeed read it."""
        return

    @property
    def parallelism_config(self) -> ParallelismConfig | None:
        """The dimensions in which the ranks work together, if they were given."""
        return self.state.parallelism_config

    @property
    def tensor_parallel_rank(self) -> int:
        """This rank's number among those that share each layer; 0 if layers are not split."""
        return self._rank_along("tp")

    @property
    def pipeline_parallel_rank(self) -> int:
        """Always 0, because models are not split into the stages of a pipeline."""
        return self._rank_along("pp")

    @property
    def data_parallel_rank(self) -> int:
        """The number of this rank's replica; 0 if there is only one."""
        return self._rank_along("dp_replicate")

    @property
    def data_parallel_shard_rank(self) -> int:
        """This rank's number among those over which FSDP2 shards a replica; 0 if none is sharded."""
        return self._rank_along("dp_shard")

    @property
    def context_parallel_rank(self) -> int:
        """The number of this rank's part of each sequence; 0 if ranks do not share sequences."""
        return self._rank_along("cp")

    def _rank_along(self, dimension: str) -> int:
        if self.parallelism_config is None:
            raise ConfigurationError("there are no dimensions: pass parallelism_config=ParallelismConfig(...)")
        mesh = self.torch_device_mesh
        names = () if mesh is None else mesh.mesh_dim_names or ()
        return mesh.get_local_rank(dimension) if mesh is not None and dimension in names else 0

    @property
    def torch_device_mesh(self) -> DeviceMesh | None:
        """The mesh of the ranks, if the strategy has one with several dimensions, otherwise `None`."""
        return self.strategy.mesh

    def wait_for_everyone(self) -> None:
        """Waits until all ranks have reached this call."""
        self.state.wait_for_everyone()

    # Settings

    @property
    def mixed_precision(self) -> str:
        """The precision of forward passes: `no`, `fp16`, `bf16` or `fp8`."""
        return self.state.mixed_precision

    @property
    def native_amp(self) -> bool:
        """Whether models run under autocast, as `mixed_precision` says. Scripts set it before they prepare a model.

        Raises:
            ConfigurationError: It is set after a model was prepared, which would keep the old setting.
        """
        return self._precision.is_automatic

    @native_amp.setter
    def native_amp(self, value: bool) -> None:
        if self._models and value != self.native_amp:
            raise ConfigurationError(
                f"native_amp={value} has no effect on the models that are prepared already: set it before prepare"
            )
        self._precision.is_automatic = value

    @property
    def has_fp8_handler(self) -> bool:
        """Whether models compute in fp8."""
        return self.mixed_precision == "fp8"

    @property
    def fp8_backend(self) -> FP8BackendType:
        """The library that computes in fp8."""
        return FP8BackendType.AO if self.has_fp8_handler else FP8BackendType.NO

    @property
    def has_lomo_optimizer(self) -> bool:
        """Always `False`, because LOMO's optimizers are not supported."""
        return False

    @property
    def scaler(self) -> torch.amp.GradScaler | None:
        """The gradient scaler of fp16; `None` with other precisions."""
        return self._precision.scaler

    @property
    def project_dir(self) -> str | None:
        """The folder of the run."""
        return self.project_configuration.project_dir

    @property
    def logging_dir(self) -> str | None:
        """The folder that trackers write to."""
        return self.project_configuration.logging_dir

    @property
    def save_iteration(self) -> int:
        """The number of the next checkpoint, with automatic naming."""
        return self.project_configuration.iteration

    @property
    def split_batches(self) -> bool:
        """Whether each batch is split among the ranks; otherwise, ranks take batches in turn."""
        return self.dataloader_config.split_batches

    @property
    def dispatch_batches(self) -> bool | None:
        """Whether rank 0 reads for all ranks; `None`: only for an `IterableDataset`."""
        return self.dataloader_config.dispatch_batches

    @property
    def even_batches(self) -> bool:
        """Whether the last batches are filled up with repeated samples."""
        return self.dataloader_config.even_batches

    @even_batches.setter
    def even_batches(self, value: bool) -> None:
        self.dataloader_config.even_batches = value

    @property
    def use_seedable_sampler(self) -> bool:
        """Whether a random order depends only on a seed and the epoch."""
        return self.dataloader_config.use_seedable_sampler

    @property
    def non_blocking(self) -> bool:
        """Whether copies to a GPU overlap with computation."""
        return self.dataloader_config.non_blocking

    @property
    def use_stateful_dataloader(self) -> bool:
        """Whether prepared loaders are torchdata's, whose position is saved with the run."""
        return self.dataloader_config.use_stateful_dataloader


def _precision(state: AcceleratorState, handlers: arguments.Handlers) -> Precision:
    """The precision of the run, with the options of the handlers."""
    return Precision(
        state.mixed_precision,
        state.device,
        autocast=handlers.get(AutocastKwargs),
        scaler=handlers.get(GradScalerKwargs),
        fp8=arguments.fp8(handlers.get(AORecipeKwargs), state.fsdp_plugin),
    )


def _strategy_settings(state: AcceleratorState, handlers: arguments.Handlers) -> Settings:
    """What decides which strategy distributes the models, and how."""
    return Settings(
        mixed_precision=state.mixed_precision,
        ddp=handlers.get(DistributedDataParallelKwargs) or DistributedDataParallelKwargs(),
        fsdp=state.fsdp_plugin,
        tensor_parallel=state.torch_tp_plugin,
        parallelism=state.parallelism_config,
    )


@contextmanager
def _state_forgotten_on_error() -> Iterator[None]:
    """Resets the shared state if the constructor fails, so that a corrected cell can create another Accelerator."""
    first = not is_initialized()
    try:
        yield
    except Exception:
        if first:
            AcceleratorState._reset_state()
        raise
