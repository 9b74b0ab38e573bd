"""The dataclasses for `Accelerator(...)`, with Accelerate's names and defaults."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from notebook_accel.errors import ConfigurationError
from notebook_accel.train.options.enums import DDPCommunicationHookType, DynamoBackend
from notebook_accel.train.options.option_class import option_class

if TYPE_CHECKING:
    from torch import nn
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor.parallel import ParallelStyle
    from torch.profiler import ProfilerActivity, profile

_ACTIVITIES = {"cpu": "CPU", "cuda": "CUDA", "xpu": "XPU"}


@dataclass
class KwargsHandler:
    """Base of the objects in `Accelerator(kwargs_handlers=[...])`."""

    def to_dict(self) -> dict[str, Any]:
        """All attributes, copied."""
        return copy.deepcopy(self.__dict__)

    def to_kwargs(self) -> dict[str, Any]:
        """The fields that differ from their defaults."""
        default = type(self)()
        chosen = {item.name: getattr(self, item.name) for item in fields(self)}
        return {name: value for name, value in chosen.items() if value != getattr(default, name)}


@option_class("kwargs_handlers=[{}]")
@dataclass
class AutocastKwargs(KwargsHandler):
    """Arguments of `torch.autocast`."""

    enabled: bool = True
    cache_enabled: bool | None = None


@option_class("kwargs_handlers=[{}]")
@dataclass
class DistributedDataParallelKwargs(KwargsHandler):
    """Arguments of `DistributedDataParallel`, and its communication hook."""

    dim: int = 0
    broadcast_buffers: bool = True
    bucket_cap_mb: int = 25
    find_unused_parameters: bool = False
    check_reduction: bool = False
    gradient_as_bucket_view: bool = False
    static_graph: bool = False
    comm_hook: DDPCommunicationHookType = DDPCommunicationHookType.NO
    comm_wrapper: DDPCommunicationHookType = DDPCommunicationHookType.NO
    comm_state_option: dict[str, Any] = field(default_factory=dict)
    """Arguments of the Power SGD state."""

    def __post_init__(self) -> None:
        hook = DDPCommunicationHookType
        self.comm_hook, self.comm_wrapper = hook(self.comm_hook), hook(self.comm_wrapper)
        if self.comm_wrapper not in (hook.NO, hook.FP16, hook.BF16):
            raise ConfigurationError(f"comm_wrapper={self.comm_wrapper} is not a wrapper: use no, fp16 or bf16")
        if self.comm_state_option and self.comm_hook not in (hook.POWER_SGD, hook.BATCHED_POWER_SGD):
            raise ConfigurationError(
                f"comm_state_option has no effect with comm_hook={self.comm_hook}: only Power SGD keeps a state"
            )


@option_class("kwargs_handlers=[{}]")
@dataclass
class GradScalerKwargs(KwargsHandler):
    """Arguments of `torch.amp.GradScaler`, which only fp16 uses."""

    init_scale: float = 65536.0
    growth_factor: float = 2.0
    backoff_factor: float = 0.5
    growth_interval: int = 2000
    enabled: bool = True


@option_class("kwargs_handlers=[{}]")
@dataclass
class InitProcessGroupKwargs(KwargsHandler):
    """Arguments of `torch.distributed.init_process_group`."""

    backend: str | None = None
    """`None`: nccl between GPUs, gloo elsewhere."""
    init_method: str | None = None
    timeout: timedelta | None = None


@option_class("kwargs_handlers=[{}]")
@dataclass
class ProfileKwargs(KwargsHandler):
    """Arguments of `torch.profiler.profile`."""

    activities: Sequence[str] | None = None
    """`cpu`, `cuda`; `None` for all that are available."""
    schedule_option: dict[str, int] | None = None
    """Arguments of `torch.profiler.schedule`."""
    on_trace_ready: Callable[..., Any] | None = None
    record_shapes: bool = False
    profile_memory: bool = False
    with_stack: bool = False
    with_flops: bool = False
    with_modules: bool = False
    output_trace_dir: str | None = None
    """The folder for a Chrome trace of each rank."""

    def build(self) -> profile:
        """Creates the profiler; `Accelerator.profile` also writes its trace.

        Raises:
            ConfigurationError: An activity is unknown, or its device is not available.
        """
        from torch.profiler import profile, schedule

        return profile(
            activities=None if self.activities is None else [_activity(name) for name in self.activities],
            schedule=None if self.schedule_option is None else schedule(**self.schedule_option),
            on_trace_ready=self.on_trace_ready,
            record_shapes=self.record_shapes,
            profile_memory=self.profile_memory,
            with_stack=self.with_stack,
            with_flops=self.with_flops,
            with_modules=self.with_modules,
        )


def _activity(name: str) -> ProfilerActivity:
    import torch
    from torch.profiler import ProfilerActivity

    if name not in _ACTIVITIES:
        raise ConfigurationError(f"activities=[{name!r}] is not known: choose from {', '.join(_ACTIVITIES)}")
    if name != "cpu" and not getattr(torch, name).is_available():
        raise ConfigurationError(f"activities=[{name!r}] has no effect: torch finds no {name} device here")
    return getattr(ProfilerActivity, _ACTIVITIES[name])  # type: ignore[no-any-return]


@option_class("kwargs_handlers=[{}]")
@dataclass
class AORecipeKwargs(KwargsHandler):
    """How torchao turns linear layers into fp8 ones.

    Raises:
        ConfigurationError: A field is given together with `config`, which has the same fields.
    """

    config: Any = None
    """A `Float8LinearConfig`; `None`: torchao's default."""
    module_filter_func: Callable[[nn.Module, str], bool] | None = None
    """Which layers to convert, by module and name; `None`: all but the first and last whose sizes fit."""
    pad_inner_dim: bool | None = None
    """Whether layers are padded whose sizes aren't multiples of 16; `None`: as in `config`."""
    enable_fsdp_float8_all_gather: bool | None = None
    """Whether FSDP gathers weights in fp8, which halves what it sends; `None`: as in `config`."""

    def __post_init__(self) -> None:
        fields = ", ".join(self.config_fields())
        if self.config is not None and fields:
            raise ConfigurationError(f"AORecipeKwargs got config and {fields}: set {fields} in the config")

    def config_fields(self) -> dict[str, bool]:
        """The fields of a `Float8LinearConfig` that are given here."""
        given = {name: getattr(self, name) for name in ("pad_inner_dim", "enable_fsdp_float8_all_gather")}
        return {name: value for name, value in given.items() if value is not None}


@option_class("gradient_accumulation_plugin={}")
@dataclass
class GradientAccumulationPlugin(KwargsHandler):
    """How gradients accumulate over several batches before a step."""

    num_steps: int | None = None
    adjust_scheduler: bool = True
    """Whether schedulers count the batches that no optimizer step followed."""
    sync_with_dataloader: bool = True
    """Whether an optimizer step always follows the last batch of a loader."""
    sync_each_batch: bool = False
    """Whether gradients are synced after every batch, which takes time but saves memory under FSDP."""

    def __post_init__(self) -> None:
        if self.num_steps is not None and (type(self.num_steps) is not int or self.num_steps < 1):
            raise ConfigurationError(f"num_steps={self.num_steps!r}: must be a whole number of batches, at least 1")


@option_class("dataloader_config={}")
@dataclass
class DataLoaderConfiguration:
    """How prepared data loaders share their samples among the ranks."""

    split_batches: bool = False
    """Whether each batch is split into one part for each rank; otherwise, ranks take whole batches in turn."""
    dispatch_batches: bool | None = None
    """Whether rank 0 reads for all; `None`: only iterable datasets."""
    even_batches: bool = True
    """Whether ranks that would get fewer batches are padded with the first samples."""
    use_seedable_sampler: bool = False
    data_seed: int | None = None
    non_blocking: bool = False
    """Whether copies to the device overlap with the work there; needs pinned memory."""
    use_stateful_dataloader: bool = False
    """Whether loaders can be saved in the middle of an epoch, through torchdata."""


@option_class("project_config={}")
@dataclass
class ProjectConfiguration:
    """Where a run writes its files."""

    project_dir: str | None = None
    logging_dir: str | None = None
    """`None`: the project's folder."""
    automatic_checkpoint_naming: bool = False
    """Whether `save_state()` numbers the checkpoints: `project_dir/checkpoints/checkpoint_0`, and so on."""
    total_limit: int | None = None
    """How many of these checkpoints are kept; the oldest is removed."""
    iteration: int = 0
    save_on_each_node: bool = False
    """Whether every node writes what the main rank writes; for folders that the nodes do not share."""

    def __post_init__(self) -> None:
        self.set_directories(self.project_dir)

    def set_directories(self, project_dir: str | None = None) -> None:
        """Sets the project's folder, and the folder for logs unless it was given."""
        self.project_dir = project_dir
        if self.logging_dir is None:
            self.logging_dir = project_dir


@option_class("dynamo_plugin={}")
@dataclass
class TorchDynamoPlugin(KwargsHandler):
    """Arguments of `torch.compile`, with which prepared models are compiled."""

    backend: DynamoBackend | str | None = None
    """This field, the next three, and the last: `None` for what the launch says, as `ACCELERATE_DYNAMO_…`."""
    mode: str | None = None
    fullgraph: bool | None = None
    dynamic: bool | None = None
    options: Any = None
    disable: bool = False
    use_regional_compilation: bool | None = None
    """Whether repeated blocks are compiled one by one, so that all share what was compiled for the first. It shortens
    the compilation of models such as transformers; see torch's recipe for regional compilation."""

    def __post_init__(self) -> None:
        if isinstance(self.backend, str) and self.backend.upper() in DynamoBackend.list():
            self.backend = DynamoBackend(self.backend)

    def filled(self, **defaults: Any) -> TorchDynamoPlugin:
        """A plugin in which defaults stand in place of fields that are `None`."""
        return replace(self, **{name: value for name, value in defaults.items() if getattr(self, name) is None})

    @property
    def chosen(self) -> bool:
        """Whether models are compiled."""
        return self.backend is not None and str(self.backend).lower() != "no"

    def given(self) -> list[str]:
        """The names of the options, besides `backend`, that were given and change how models are compiled."""
        names = ("mode", "fullgraph", "dynamic", "options", "use_regional_compilation")
        return [name for name in names if getattr(self, name) not in (None, False)]

    def to_kwargs(self) -> dict[str, Any]:
        """The arguments of `torch.compile`."""
        chosen = super().to_kwargs()
        chosen.pop("use_regional_compilation", None)
        return {**chosen, "backend": str(self.backend).lower()} if self.chosen else chosen


@option_class("torch_tp_plugin={}")
@dataclass
class TorchTensorParallelPlugin:
    """Splits layers over the ranks with torch's `parallelize_module`."""

    tp_size: int = 1
    """How many ranks share each layer; the number of all ranks must be a multiple of it."""
    torch_device_mesh: DeviceMesh | None = None
    """A mesh with a dimension `tp`, and `dp` if there are more ranks; `None` to create one."""
    plan: Mapping[str, ParallelStyle | str] | None = None
    """How to split each submodule, by name or pattern: a `ParallelStyle` of torch, or its name in transformers' plans,
    such as `colwise`."""
