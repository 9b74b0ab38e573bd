"""`Accelerator`: the facade between a plain training loop and the ranks and devices that it runs on.

Each method says which part does its work: the strategy, the objects that are prepared, the accumulation of gradients,
the checkpoints, the trackers, or a module of the folders below.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import AbstractContextManager, ExitStack, contextmanager
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast, overload

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader

from notebook_accel import advice
from notebook_accel.errors import ConfigurationError
from notebook_accel.train import step_timing
from notebook_accel.train.accelerator import arguments
from notebook_accel.train.accelerator.epoch_loop import EpochLoop, PlainLoop, Run
from notebook_accel.train.accelerator.prepared import Prepared, remember
from notebook_accel.train.checkpoints import serialization, weights
from notebook_accel.train.checkpoints.checkpoint import Checkpoints
from notebook_accel.train.checkpoints.contents import Contents
from notebook_accel.train.data import prepare as loaders
from notebook_accel.train.data import uneven_inputs
from notebook_accel.train.models import batch_size, compiling, parallel_wrappers, prepare_checks
from notebook_accel.train.models.precision import Precision
from notebook_accel.train.options.deepspeed import DeepSpeedPlugin
from notebook_accel.train.options.enums import (
    DistributedType,
    DynamoBackend,
    FP8BackendType,
    LoggerType,
    PrecisionType,
    RNGType,
)
from notebook_accel.train.options.fsdp import FullyShardedDataParallelPlugin
from notebook_accel.train.options.option_class import of_an_option_class, of_the_launch
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
from notebook_accel.train.ranks import collectives, environment
from notebook_accel.train.ranks.gradient_state import GradientState
from notebook_accel.train.ranks.mesh import Mesh, Ranks
from notebook_accel.train.ranks.process_group import Membership
from notebook_accel.train.ranks.rank_aware import RankAware
from notebook_accel.train.ranks.seeds import share_random_states
from notebook_accel.train.ranks.state import AcceleratorState, is_initialized
from notebook_accel.train.ranks.step_observers import TrainingPoint
from notebook_accel.train.steps.accumulation import NO_OP, Accumulation, NoSync, NullContext
from notebook_accel.train.steps.optimizer import AcceleratedOptimizer
from notebook_accel.train.steps.optimizer import inner as own_optimizer
from notebook_accel.train.steps.profiling import Profiled
from notebook_accel.train.steps.scheduler import AcceleratedScheduler
from notebook_accel.train.steps.tunables import Tunable, Tunables
from notebook_accel.train.strategies import choose
from notebook_accel.train.strategies.base import Settings
from notebook_accel.train.trackers.active_trackers import TrackerGroup
from notebook_accel.train.trackers.base import GeneralTracker

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh
    from typing_extensions import TypeVarTuple, Unpack

    Several = TypeVarTuple("Several")

One = TypeVar("One")
Model = TypeVar("Model", bound=nn.Module)


class Accelerator(RankAware):
    """Runs a plain PyTorch loop on any number of ranks and on any device.

        accelerator = Accelerator()
        model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = loss_function(model(inputs), targets)
            accelerator.backward(loss)
            optimizer.step()
            scheduler.step()

    On the ranks of a launch it needs no arguments; outside a launch it uses a single device. Its interface is that of
    Hugging Face Accelerate's class of the same name.

    Args:
        device_placement: Whether `prepare` moves models, and loaders move batches, to the rank's device.
        split_batches: As in `DataLoaderConfiguration`.
        mixed_precision: `no`, `fp16`, `bf16` or `fp8`; `None`: the launch's setting.
        gradient_accumulation_steps: The number of batches over which gradients are accumulated.
        cpu: Whether to use the CPU even if there are accelerators.
        dataloader_config: How loaders share their samples among the ranks.
        deepspeed_plugin: Shards as DeepSpeed's ZeRO does, with FSDP2.
        fsdp_plugin: Shards parameters with FSDP2.
        torch_tp_plugin: Splits layers over ranks (tensor parallel).
        megatron_lm_plugin: Not available.
        rng_types: Which random states loaders make equal on all ranks at the start of each epoch; `None`: only the
            generator of their sampler.
        log_with: Trackers: names, or your own objects.
        project_dir: The folder for the run's checkpoints and logs.
        project_config: The same, with more options.
        gradient_accumulation_plugin: Instead of `gradient_accumulation_steps`, with more options.
        step_scheduler_with_optimizer: Whether schedulers step only when their optimizers do.
        kwargs_handlers: Arguments for the objects that it creates: `DistributedDataParallelKwargs`, `GradScalerKwargs`
            and so on.
        dynamo_backend: Compiles models with `torch.compile` and this backend.
        dynamo_plugin: The same, with more options.
        deepspeed_plugins: Not available.
        parallelism_config: Several dimensions together: replicas, shards, layers split over ranks.

    Raises:
        ConfigurationError: Arguments contradict each other, the device, or an existing Accelerator.
        TypeError: There is no such argument; the message says what to write instead.
        HardwareError: The device cannot compute in that precision.
    """

    @advice.explained(advice.listed("Accelerator"), of_an_option_class, of_the_launch)
    def __init__(
        self,
        device_placement: bool = True,
        split_batches: bool | None = None,
        mixed_precision: PrecisionType | str | None = None,
        gradient_accumulation_steps: int = 1,
        cpu: bool = False,
        dataloader_config: DataLoaderConfiguration | None = None,
        deepspeed_plugin: DeepSpeedPlugin | None = None,
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
        advice.refuse("Accelerator", deepspeed_plugins=deepspeed_plugins, megatron_lm_plugin=megatron_lm_plugin)
        handlers = arguments.Handlers(kwargs_handlers or ())
        self.project_configuration = arguments.project(project_config, project_dir)
        self.dataloader_config = arguments.loading(dataloader_config, split_batches)
        precision = None if mixed_precision is None else str(mixed_precision)
        fsdp_plugin, precision, clipping = arguments.translated(deepspeed_plugin, fsdp_plugin, precision)
        accumulation = arguments.accumulation(
            gradient_accumulation_plugin,
            gradient_accumulation_steps,
            None if deepspeed_plugin is None else deepspeed_plugin.gradient_accumulation_steps,
        )
        group_options = handlers.get(InitProcessGroupKwargs)
        with _state_forgotten_on_error():
            self.state = AcceleratorState(
                mixed_precision=precision,
                cpu=cpu,
                dynamo_plugin=arguments.compiling(dynamo_plugin, dynamo_backend),
                fsdp_plugin=fsdp_plugin,
                torch_tp_plugin=torch_tp_plugin,
                parallelism_config=parallelism_config,
                **({} if group_options is None else group_options.to_kwargs()),
            )
            self._precision = _precision(self.state, handlers)
            self.strategy = choose(self.state.partial, _strategy_settings(self.state, handlers))
        arguments.warn_of_no_compiler(dynamo_plugin, self.state.dynamo_plugin)
        arguments.warn_of_other_precision(handlers, self.state.mixed_precision)
        self.state._follow(self.strategy.mesh, self.strategy.sharing)
        share_random_states(self.state.sharing.peers)
        arguments.warn_of_other_accumulation(accumulation.num_steps or 1)
        self.gradient_state = GradientState(accumulation)
        self._made_for = self.num_processes
        """The number of ranks that the strategy was chosen for."""
        self.device_placement = device_placement
        self.step_scheduler_with_optimizer = step_scheduler_with_optimizer
        self.rng_types = [
            RNGType.of(each, "rng_types") for each in (("generator",) if rng_types is None else rng_types)
        ]
        self.flag_tensor: torch.Tensor | None = None
        self._accumulation = Accumulation(self.strategy, self.gradient_state)
        if (clock := step_timing.of_this_rank(self.device)) is not None:
            self.gradient_state.observers.begin_with(clock)
        self._tracker_group = TrackerGroup(log_with, self.logging_dir)
        self._checkpoints = Checkpoints(self.project_configuration)
        self._has_looped = False
        """Whether a loop over `epochs` has begun that saves checkpoints."""
        self._tunables = Tunables()
        self._prepared = Prepared(self.strategy, self._precision, self.state.dynamo_plugin, clipping)
        self._name_as_accelerate(handlers)

    def _name_as_accelerate(self, handlers: arguments.Handlers) -> None:
        """Gives what the constructor has settled the names that Accelerate has for it, which libraries read."""
        self.ddp_handler = handlers.get(DistributedDataParallelKwargs)
        self.scaler_handler = handlers.get(GradScalerKwargs)
        self.init_handler = handlers.get(InitProcessGroupKwargs)
        self.autocast_handler = handlers.get(AutocastKwargs)
        self.profile_handler = handlers.get(ProfileKwargs)
        self.ao_recipe_handler = self._precision.fp8_options if self.has_fp8_handler else None
        """How models are converted to fp8; `None` in another precision."""
        self.fp8_recipe_handler = self.te_recipe_handler = self.msamp_recipe_handler = None
        """Always `None`, because only torchao computes in fp8 here."""
        self._models = self._prepared.models
        self._optimizers = self._prepared.optimizers
        self._schedulers = self._prepared.schedulers
        self._dataloaders = self._prepared.loaders

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
    def _membership(self) -> Membership:
        return self.state.partial.membership

    @property
    def _data_ranks(self) -> Ranks:
        return self.state.sharing.data

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
        """Always `None`, because FSDP2 trains; libraries that support DeepSpeed read it."""
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
        return self.strategy.mesh.rank_along(dimension)

    @property
    def torch_device_mesh(self) -> DeviceMesh | None:
        """The mesh of the ranks, if the strategy has one with several dimensions, otherwise `None`."""
        return self.strategy.mesh.device_mesh

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

    # Preparing

    @overload
    def prepare(self, one: One, /, *, device_placement: Sequence[bool | None] | None = None) -> One: ...
    @overload
    def prepare(
        self, *args: Unpack[Several], device_placement: Sequence[bool | None] | None = None
    ) -> tuple[Unpack[Several]]: ...
    def prepare(  # type: ignore[misc]  # mypy takes no `*args: Any` for `Unpack`
        self, *args: Any, device_placement: Sequence[bool | None] | None = None
    ) -> Any:
        """Makes models, optimizers, loaders and schedulers ready for the ranks.

        Args:
            args: Any number of them, in any order; models together with their optimizers. Other objects, and those that
                are already prepared, are returned unchanged.
            device_placement: For each of them, whether it is moved to the device; `None`: the Accelerator's setting.

        Returns:
            The prepared objects in the same order; a single object itself rather than a tuple. To a type checker, each
            is of the class that it was of, though with several ranks DDP wraps a model.

        Raises:
            ConfigurationError: The objects do not fit together.
        """
        placements = [None] * len(args) if device_placement is None else list(device_placement)
        if len(placements) != len(args):
            raise ConfigurationError(f"device_placement has {len(placements)} entries for {len(args)} objects")
        prepare_checks.refuse_containers(args)
        found = list(args)
        models = [index for index, each in enumerate(args) if isinstance(each, nn.Module)]
        optimizers = [each for each in args if isinstance(each, Optimizer)]
        self._prepared.refuse_unrelated([args[index] for index in models], optimizers)
        moved = [self._moves_to_device(placements[index]) for index in models]
        prepared = self._prepared.add_models([args[index] for index in models], moved, optimizers)
        for index, model in zip(models, prepared, strict=True):
            found[index] = model
        for index, each in enumerate(args):
            if isinstance(each, DataLoader):
                found[index] = self.prepare_data_loader(each, placements[index])
            elif isinstance(each, Optimizer):
                found[index] = self._add_optimizer(each, placements[index])
        for index, each in enumerate(args):  # last, since schedulers follow prepared optimizers
            if isinstance(each, LRScheduler):
                found[index] = self.prepare_scheduler(each)
        return found[0] if len(found) == 1 else tuple(found)

    def prepare_model(
        self, model: nn.Module, device_placement: bool | None = None, evaluation_mode: bool = False
    ) -> nn.Module:
        """Prepares one model.

        Args:
            model: The model.
            device_placement: Whether it is moved to the device; `None`: the Accelerator's setting.
            evaluation_mode: Whether the model is only evaluated, so that it is neither sharded nor wrapped.
        """
        if not evaluation_mode:
            return self._prepared.add_models([model], [self._moves_to_device(device_placement)], [])[0]
        inner = self._precision.apply(compiling.inner(model))
        moved = inner.to(self.device) if self._moves_to_device(device_placement) else inner
        return compiling.as_given(moved, model, self.state.dynamo_plugin)

    def prepare_data_loader(
        self,
        data_loader: DataLoader[Any],
        device_placement: bool | None = None,
        slice_fn_for_dispatch: Callable[..., Any] | None = None,
    ) -> DataLoader[Any]:
        """Prepares one data loader.

        Args:
            data_loader: The loader.
            device_placement: Whether its batches are moved to the device; `None`: the Accelerator's setting.
            slice_fn_for_dispatch: How rank 0 cuts a batch if it reads for all ranks; see `slice_tensors`.
        """
        config = self.dataloader_config
        prepared = loaders.prepare_data_loader(
            data_loader,
            self.device,
            split_batches=config.split_batches,
            put_on_device=self._moves_to_device(device_placement),
            rng_types=list(self.rng_types),
            dispatch_batches=config.dispatch_batches,
            even_batches=config.even_batches,
            slice_fn_for_dispatch=slice_fn_for_dispatch,
            use_seedable_sampler=config.use_seedable_sampler,
            data_seed=config.data_seed,
            non_blocking=config.non_blocking,
            use_stateful_dataloader=config.use_stateful_dataloader,
            torch_device_mesh=self.torch_device_mesh,
        )
        return remember(self._dataloaders, prepared)

    def prepare_optimizer(self, optimizer: Optimizer, device_placement: bool | None = None) -> AcceleratedOptimizer:
        """Prepares one optimizer, whose model must already be prepared.

        Raises:
            ConfigurationError: There are several ranks, and its parameters do not belong to a prepared model.
        """
        self._prepared.refuse_unrelated([], [optimizer])
        return self._add_optimizer(optimizer, device_placement)

    def _add_optimizer(self, optimizer: Optimizer, device_placement: bool | None) -> AcceleratedOptimizer:
        has_even_steps = self.even_batches or not self.use_distributed
        return self._prepared.add_optimizer(optimizer, self._moves_to_device(device_placement), has_even_steps)

    def prepare_scheduler(self, scheduler: LRScheduler) -> AcceleratedScheduler:
        """Prepares one scheduler, whose optimizer must already be prepared.

        Raises:
            ConfigurationError: Its optimizer is not prepared.
        """
        return self._prepared.add_scheduler(
            scheduler, self.step_scheduler_with_optimizer, self.split_batches, self._data_ranks.size
        )

    def _moves_to_device(self, device_placement: bool | None) -> bool:
        return self.device_placement if device_placement is None else device_placement

    def verify_device_map(self, model: nn.Module) -> bool:
        """Whether a model was loaded with a `device_map` of several entries, so that several ranks refuse it."""
        return prepare_checks.is_spread_over_devices(model)

    # Undoing

    def unwrap_model(self, model: Model, keep_fp32_wrapper: bool = True, keep_torch_compile: bool = True) -> Model:
        """Returns the user's own model.

        Args:
            model: A prepared model.
            keep_fp32_wrapper: Whether its forward keeps running in mixed precision, with outputs in float32.
            keep_torch_compile: Whether a compiled model stays compiled.
        """
        own = parallel_wrappers.extract_model_from_parallel(model, keep_fp32_wrapper, keep_torch_compile)
        return cast("Model", own)  # whose class `prepare` keeps for type checkers

    def skip_first_batches(self, dataloader: DataLoader[Any], num_batches: int = 0) -> DataLoader[Any]:
        """Returns a loader that skips the first batches, to resume in the middle of an epoch."""
        return loaders.skip_first_batches(dataloader, num_batches)

    def free_memory(self, *objects: Any) -> list[Any]:
        """Drops all references to prepared objects, and frees their memory.

            model, optimizer = accelerator.free_memory(model, optimizer)

        Returns:
            A `None` for each object.
        """
        self._prepared.clear()
        self._accumulation.step = 0
        return list(batch_size.release_memory(*objects))

    def clear(self, *objects: Any) -> list[Any]:
        """The same as `free_memory`."""
        return self.free_memory(*objects)

    # Gradient accumulation

    @property
    def sync_gradients(self) -> bool:
        """Whether the current batch is followed by an optimizer step, so that its gradients are synced."""
        return self.gradient_state.sync_gradients

    @sync_gradients.setter
    def sync_gradients(self, value: bool) -> None:
        self.gradient_state.sync_gradients = value

    @property
    def gradient_accumulation_steps(self) -> int:
        """The number of batches over which gradients are accumulated."""
        return self.gradient_state.num_steps

    @gradient_accumulation_steps.setter
    def gradient_accumulation_steps(self, value: int) -> None:
        self.gradient_state.num_steps = GradientAccumulationPlugin(num_steps=value).num_steps or 1

    @property
    def step(self) -> int:
        """The number of batches since a loader last ended."""
        return self._accumulation.step

    @step.setter
    def step(self, value: int) -> None:
        self._accumulation.step = value

    def accumulate(self, *models: nn.Module) -> NullContext:
        """Counts a batch; within the block, optimizers step and gradients are synced only if a step is due.

            for batch in loader:
                with accelerator.accumulate(model):
                    ...

        Args:
            models: The prepared models whose gradients are accumulated.
        """
        self._prepared.check_devices()
        return self._accumulation.next(models)

    def no_sync(self, model: nn.Module) -> NullContext:
        """Disables gradient synchronization within the block, as DDP's `no_sync` does."""
        return NoSync(self.strategy, (model,)) if self.strategy.supports_no_sync else NO_OP

    def trigger_sync_in_backward(self, model: nn.Module) -> AbstractContextManager[None]:
        """Makes backward passes in the block sync gradients even if their forward pass ran under `no_sync`."""
        return self.strategy.sync_in_backward(compiling.inner(model))

    @contextmanager
    def join_uneven_inputs(self, joinables: Sequence[Any], even_batches: bool | None = None) -> Iterator[None]:
        """Lets ranks that run out of batches take part in the others' collectives until all are done.

        They then take over the states of the optimizers and schedulers from the ranks that had more.

        Args:
            joinables: The prepared models (and other `Joinable` objects) of the loop.
            even_batches: Whether prepared loaders pad the ranks that have fewer batches; `None`: as configured.
        """
        with ExitStack() as stack:
            if even_batches is not None and self.use_distributed:
                stack.enter_context(uneven_inputs.overriding_even_batches(self._dataloaders, even_batches))
            if self.use_distributed:
                stack.enter_context(uneven_inputs.catching_up(self._optimizers, self._schedulers))
                stack.enter_context(self._accumulation.checked_by(uneven_inputs.check_accumulation))
            stack.enter_context(self.strategy.join([compiling.inner(each) for each in joinables]))
            yield
        if self.use_distributed:  # ranks that have run out of batches have made fewer steps
            point = TrainingPoint.of_this_rank()
            point.steps = int(collectives.reduce(torch.tensor(point.steps), "max"))

    # The step

    def backward(self, loss: torch.Tensor, **kwargs: Any) -> None:
        """Computes gradients: `loss.backward()`, of the loss divided by the accumulation steps, and scaled with fp16.

        Args:
            loss: A tensor without dimensions.
            kwargs: Arguments of `Tensor.backward`.
        """
        self._prepared.check_backward(loss)
        state = self.gradient_state
        state.turn += 1
        steps = state.num_steps
        if steps != 1:
            loss = loss / steps
        if self.scaler is not None:
            loss = self.scaler.scale(loss)
        for begin in state.observers.before_backward:
            begin(loss, self._prepared.synchronizes)
        self.strategy.before_backward(self._models, loss)
        has_ended = False
        try:
            loss.backward(**kwargs)  # type: ignore[no-untyped-call]
            has_ended = True
        finally:
            for end in state.observers.after_backward:
                end(has_ended)
        self.strategy.after_backward()

    def unscale_gradients(self, optimizer: Any = None) -> None:
        """Removes fp16's scaling from the gradients, so that they can be inspected; without fp16, does nothing.

        Args:
            optimizer: One or several prepared optimizers; `None`: all.
        """
        scaler = self.scaler
        if scaler is None:
            return
        chosen = self._optimizers if optimizer is None else optimizer
        for each in chosen if isinstance(chosen, (list, tuple)) else [chosen]:
            scaler.unscale_(own_optimizer(each))

    def clip_grad_norm_(
        self, parameters: torch.Tensor | Iterable[torch.Tensor], max_norm: float, norm_type: float = 2
    ) -> torch.Tensor:
        """Scales all gradients by the same factor, so that their norm is at most `max_norm`.

        fp16's scaling is removed first. The norm is that of `torch.nn.utils.clip_grad_norm_`, over all parameters
        together, and over the shards of all ranks.

        Args:
            parameters: The parameters of prepared models.
            max_norm: The greatest norm.
            norm_type: The p of the p-norm; `float("inf")` for the largest absolute value.

        Returns:
            The norm before clipping: a tensor without dimensions.
        """
        self.unscale_gradients()
        given = [parameters] if isinstance(parameters, torch.Tensor) else parameters
        return self.strategy.clip_grad_norm_(given, max_norm, norm_type)

    def clip_grad_value_(self, parameters: torch.Tensor | Iterable[torch.Tensor], clip_value: float) -> None:
        """Limits each element of the gradients to ±`clip_value`. fp16's scaling is removed first."""
        self.unscale_gradients()
        given = [parameters] if isinstance(parameters, torch.Tensor) else parameters
        self.strategy.clip_grad_value_(given, clip_value)

    @property
    def optimizer_step_was_skipped(self) -> bool:
        """Whether an optimizer skipped its last step because of overflowing gradients."""
        return any(optimizer.step_was_skipped for optimizer in self._optimizers)

    def autocast(self, autocast_handler: AutocastKwargs | None = None) -> AbstractContextManager[Any]:
        """Computes in the precision of the Accelerator within the block; prepared models do so by themselves.

        Args:
            autocast_handler: The options; `None`: those of `kwargs_handlers`.
        """
        return self._precision.autocast(autocast_handler)

    def maybe_context_parallel(
        self,
        buffers: Sequence[torch.Tensor] | None = None,
        buffer_seq_dims: Sequence[int] | None = None,
        no_restore_buffers: Set[torch.Tensor] | None = None,
    ) -> AbstractContextManager[None]:
        """Within the block, ranks share each sequence, if there are several along `cp`; otherwise it does nothing.

            with accelerator.maybe_context_parallel(buffers=[inputs, targets], buffer_seq_dims=[1, 1]):
                accelerator.backward(loss_function(model(inputs), targets))
                optimizer.step()

        Args:
            buffers: The tensors of a batch that have a dimension for the sequence, positions among them. In the block,
                they hold this rank's part, in place.
            buffer_seq_dims: That dimension of each.
            no_restore_buffers: Those that need not hold the whole sequences again after the block.

        Raises:
            ConfigurationError: The sequences cannot be cut into equal parts.
        """
        self.gradient_state.has_cut_sequences = True
        return self.strategy.share_sequences(buffers or (), buffer_seq_dims or (), no_restore_buffers or set())

    # Collectives

    def gather(self, tensor: One) -> One:
        """Concatenates the tensors of all ranks along their first dimension, in the order of the ranks.

        Ranks that get the same samples, because they share layers or sequences, count once.

        Args:
            tensor: A tensor or a tree of tensors, of the same shapes on all ranks.

        Returns:
            The same tree on every rank; a tensor of shape (n, …) has become (ranks × n, …), and one without dimensions
            (ranks,).

        Raises:
            DistributedOperationException: The shapes or types differ; the message lists those of each rank.
            TypeError: A leaf is not a tensor.
        """
        return collectives.gather_over(tensor, self._data_ranks)

    @overload
    def gather_for_metrics(self, input_data: One, use_gather_object: Literal[False] = False) -> One: ...
    @overload
    def gather_for_metrics(self, input_data: Any, use_gather_object: bool) -> Any: ...
    def gather_for_metrics(self, input_data: Any, use_gather_object: bool = False) -> Any:
        """Gathers like `gather`, but drops the samples that were repeated to pad the last batch.

        Args:
            input_data: A tensor, an array, or a list or tuple, with an entry for each sample; or a tuple, dict, or
                dataclass of these. A tensor without dimensions becomes one value for each rank.
            use_gather_object: Whether the entries are gathered as objects, so that the shapes of tensors may differ.
                The entries of lists may then be anything, and tensors become lists.

        Returns:
            The same tree, with the entries of all ranks.

        Raises:
            ConfigurationError: Something can't be gathered, or hasn't an entry for each sample of the last batch.
            DistributedOperationException: The shapes, the types, or the structures differ between ranks.
        """
        return uneven_inputs.gather_for_metrics(input_data, use_gather_object, self._data_ranks)

    def reduce(self, tensor: One, reduction: str = "sum", scale: float = 1.0) -> One:
        """Adds up the tensors of all ranks, or takes their `mean` or `max`; see `notebook_accel.reduce`.

        Ranks that share layers compute the same results, and count once. So do ranks that share sequences, unless the
        loop over the last prepared loader has used `maybe_context_parallel`, where each computes a part of the result.
        """
        sharing = self.state.sharing
        # Equal results have the same mean and maximum as one of them, and parts have to be in there.
        has_parts = reduction != "sum" or self.gradient_state.has_cut_sequences
        return collectives.reduce_over(tensor, reduction, scale, sharing.results if has_parts else sharing.data)

    def pad_across_processes(self, tensor: One, dim: int = 0, pad_index: float = 0, pad_first: bool = False) -> One:
        """Pads tensors along a dimension to the longest of all ranks; see `notebook_accel.pad_across_processes`."""
        return collectives.pad_across_processes(tensor, dim=dim, pad_index=pad_index, pad_first=pad_first)

    def tunable(
        self,
        name: str,
        value: float,
        *,
        low: float | None = None,
        high: float | None = None,
        on_change: Callable[[Any], object] | None = None,
    ) -> Tunable:
        """A number that you can change while the training runs, in the panel or with `job.tune`.

            def set_rate(rate):
                for group in optimizer.param_groups:
                    group["lr"] = rate

            accelerator.tunable("lr", 0.1, low=0, on_change=set_rate)

        It changes after the same step on all ranks, all of which call this method. Checkpoints save it, and a training
        run that continues from a checkpoint starts with the saved value.

        Args:
            name: Its name in the panel and in `job.tune`: a Python name.
            value: The first value. An integer stays one.
            low: The least value that is accepted; `None`: any.
            high: The greatest value that is accepted; `None`: any.
            on_change: Called on each rank with each new value, between two steps; not with the first one. If it raises
                an exception, the value stays as it was, and the request fails with that error.

        Returns:
            An object whose attribute `value` is the current number.

        Raises:
            ConfigurationError: The name is not a Python name, or a number is not finite or out of range.
        """
        return self._tunables.add(Tunable(name, value, low, high, on_change))

    def set_trigger(self) -> None:
        """Sets a flag that all ranks see in `check_trigger`, for instance to stop early."""
        self.flag_tensor = torch.tensor(1)

    def check_trigger(self) -> bool:
        """Whether any rank has set the flag since the last check; all ranks call it."""
        own = torch.tensor(0) if self.flag_tensor is None else self.flag_tensor
        self.flag_tensor = None
        return bool(collectives.reduce(own, "sum") > 0)

    # Checkpoints

    @advice.explained()
    def save_state(self, output_dir: str | os.PathLike[str] | None = None, safe_serialization: bool = True) -> Path:
        """Saves the state of the run to a folder; all ranks call it.

        If each rank has the complete weights, as with DDP, rank 0 doesn't wait for the others: each of them adds its
        random states and its positions in the loaders to the checkpoint when it calls. So rank 0 may also call it
        alone, as scripts for Accelerate do, and `load_state` then names the ranks whose states are missing. Before you
        copy the folder elsewhere, call `wait_for_everyone`.

        Args:
            output_dir: The folder; not used with `ProjectConfiguration(automatic_checkpoint_naming=True)`.
            safe_serialization: Whether unsharded weights are written as safetensors.

        Returns:
            The folder.

        Raises:
            ConfigurationError: No folder is given, it is a file, or a state could not be loaded without running code.
            CheckpointError: Another rank could not save its part.
            OSError: A file could not be written.
        """
        return self._checkpoints.save(self._contents(), output_dir, safe_serialization)

    @advice.explained()
    def load_state(
        self,
        input_dir: str | os.PathLike[str] | None = None,
        load_kwargs: dict[str, Any] | None = None,
        *,
        strict: bool = True,
        map_location: Any = None,
    ) -> None:
        """Restores the state of the run from a folder; all ranks call it, after `prepare`.

        Args:
            input_dir: The folder; `None` with automatic naming: the newest checkpoint.
            load_kwargs: More arguments of `torch.load`, for optimizers and schedulers.
            strict: Whether the weights must be exactly the model's.
            map_location: Where optimizer states are loaded first: `cpu`, the default, or `on_device`.

        Raises:
            ConfigurationError: There is no checkpoint, or loading a file could run code.
            CheckpointError: A file is missing or does not fit the prepared objects, or another rank could not load.
        """
        step = self._checkpoints.load(self._contents(), input_dir, load_kwargs, strict, map_location)
        self._accumulation.step = step

    def epochs(self, count: int) -> Iterator[int]:
        """Counts the epochs, and saves checkpoints on the way if the launch names a folder for them.

            for epoch in accelerator.epochs(10):
                for inputs, targets in loader:
                    ...

        Without `checkpoint=` in the launch, it counts like `range(count)`. With it, the run's state is saved in the
        background at steps of the prepared loaders, and a launch with the same folder yields the epochs that are left:
        in the first of them, the loaders leave out what was done. `job.end_after_epoch` ends it early. All ranks call
        it, after `prepare`. See docs/resuming.md.

        Args:
            count: The number of epochs.

        Raises:
            ConfigurationError: Something could not be resumed at all; or `count` is not valid.
            CheckpointError: The folder has the checkpoints of another training run.
        """
        if not isinstance(count, (int, Integral)) or count < 0:
            raise ConfigurationError(f"epochs({count!r}): give the number of epochs, 0 or more")
        settings = environment.read()
        if not settings.checkpoint_dir:
            return PlainLoop(count).epochs()
        if self._has_looped:
            raise ConfigurationError(
                "checkpoint= saves a single loop over accelerator.epochs(), because the checkpoints of two loops "
                "could not be told apart: use range() for one of them, or make them one loop"
            )
        self._has_looped = True
        run = Run(self._contents, self._checkpoints, self._set_step, self.even_batches)
        return EpochLoop(run, count, settings).epochs()

    def _set_step(self, step: int) -> None:
        self._accumulation.step = step

    def _contents(self) -> Contents:
        return Contents(
            strategy=self.strategy,
            models=[parallel_wrappers.innermost(model) for model in self._models],
            optimizers=[optimizer.optimizer for optimizer in self._optimizers],
            schedulers=list(self._schedulers),
            loaders=list(self._dataloaders),
            scaler=self.scaler,
            tunables=self._tunables,
            custom=self._checkpoints.custom,
            step=self._accumulation.step,
            pending=not self.gradient_state.sync_gradients,
        )

    def register_for_checkpointing(self, *objects: Any) -> None:
        """Includes objects in checkpoints.

        Raises:
            ConfigurationError: One of them has no `state_dict()` or no `load_state_dict(state)`.
        """
        self._checkpoints.register(*objects)

    @property
    def _custom_objects(self) -> list[Any]:
        return self._checkpoints.custom

    def register_save_state_pre_hook(self, hook: Callable[..., None]) -> Any:
        """Makes `save_state` call `hook(models, weights, folder)`; what it removes from `weights` is not written.

        The models are your own, without DDP's wrapper.

        Returns:
            A handle, whose `remove()` unregisters the hook.
        """
        return self._checkpoints.register_save_hook(hook)

    def register_load_state_pre_hook(self, hook: Callable[..., None]) -> Any:
        """Makes `load_state` call `hook(models, folder)`; models that it removes are not loaded.

        The models are your own, without DDP's wrapper.

        Returns:
            A handle, whose `remove()` unregisters the hook.
        """
        return self._checkpoints.register_load_hook(hook)

    # Weights

    @property
    def should_save_model(self) -> bool:
        """Whether this rank writes the files that would be equal on all ranks."""
        return self._checkpoints.writes

    def get_state_dict(self, model: nn.Module, unwrap: bool = True) -> dict[str, torch.Tensor]:
        """Returns the weights of a prepared model, complete at least on rank 0; all ranks call it.

        Args:
            model: The model.
            unwrap: Whether to use the parameter names of the user's model rather than of the wrapped one.

        Returns:
            Tensors by name, of the shapes that they have in the user's model.
        """
        inner = compiling.inner(model)
        return self.strategy.state_dict(inner) if unwrap else dict(inner.state_dict())

    def save_model(
        self,
        model: nn.Module,
        save_directory: str | os.PathLike[str],
        max_shard_size: int | str = "10GB",
        safe_serialization: bool = True,
    ) -> None:
        """Writes a model's weights into a folder, in files of at most `max_shard_size`, on rank 0.

        All ranks call it, and of weights that are sharded or split, all wait until they are written. If each rank has
        the complete weights, as with DDP, rank 0 may also call it alone, as scripts for Accelerate do; before another
        rank reads the files, call `wait_for_everyone`.

        Args:
            model: The model.
            save_directory: The folder; it is created if it does not exist.
            max_shard_size: A number of bytes, or a text such as `5GB` (10⁹ bytes each) or `5GiB`.
            safe_serialization: Whether to write safetensors rather than torch's pickle.
        """
        offloaded = weights.of_offloaded(model)
        state = self.get_state_dict(model) if offloaded is None else offloaded
        if self.should_save_model:
            weights.save_model(state, save_directory, max_shard_size, safe_serialization)
        if self.strategy.gathers_weights:
            self.wait_for_everyone()

    def save(self, obj: Any, f: str | os.PathLike[str], safe_serialization: bool = False) -> None:
        """Writes an object to a file, on rank 0 only; with `save_on_each_node`, on the first rank of each node.

        Args:
            obj: What `torch.save` can write; with `safe_serialization`, a dict of tensors.
            f: The file.
            safe_serialization: Whether to write safetensors.
        """
        serialization.save(obj, f, self.project_configuration.save_on_each_node, safe_serialization)

    # Metrics

    @property
    def log_with(self) -> list[Any]:
        """The trackers that were chosen."""
        return self._tracker_group.log_with

    @property
    def trackers(self) -> list[GeneralTracker]:
        """The trackers that have been started."""
        return self._tracker_group.trackers

    def init_trackers(
        self,
        project_name: str,
        config: dict[str, Any] | None = None,
        init_kwargs: dict[str, Any] | None = None,
    ) -> None:
        """Starts a run with each tracker of `log_with`.

        Args:
            project_name: Its name.
            config: Settings to store with the run.
            init_kwargs: Arguments for each tracker, by the tracker's name.
        """
        self._tracker_group.start(project_name, config, init_kwargs)

    def get_tracker(self, name: str, unwrap: bool = False) -> Any:
        """A started tracker.

        Args:
            name: Its name, such as `"tensorboard"`.
            unwrap: Whether to return the service's own object, such as its run, instead.

        Returns:
            The tracker. On ranks that don't log, an object that accepts every call and does nothing.

        Raises:
            ConfigurationError: There is no tracker of this name, or it has not been started.
        """
        return self._tracker_group.get(name, unwrap)

    def log(self, values: dict[str, Any], step: int | None = None, log_kwargs: dict[str, Any] | None = None) -> None:
        """Logs values to all trackers, and shows them in the notebook.

        Args:
            values: Numbers and texts by name.
            step: The training step.
            log_kwargs: Arguments for each tracker, by the tracker's name.
        """
        self._tracker_group.log(values, step, log_kwargs)

    def profile(self, profile_handler: ProfileKwargs | None = None) -> Profiled:
        """Profiles the block; `with ... as` gives torch's profiler.

        Args:
            profile_handler: The options; `None`: those of `kwargs_handlers`.
        """
        return Profiled(profile_handler or self.profile_handler or ProfileKwargs())

    def end_training(self) -> None:
        """Closes the trackers, and leaves the process group. The next `Accelerator` starts from scratch."""
        self._tracker_group.finish()
        # Not with gloo: a rank that leaves may close connections that still carry data of the last collective, and the
        # others would hang. That group ends with the process.
        if self.state.backend == "nccl":
            self.state.destroy_process_group()
        AcceleratorState._reset_state(reset_partial_state=True)


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
        mesh=Mesh.of(state.partial.membership, state.fsdp_plugin, state.torch_tp_plugin, state.parallelism_config),
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
