# Written by scripts/generate from notebook_accel/exports.py.

from notebook_accel.train.accelerator.accelerator import (
    Accelerator,
)
from notebook_accel.train.checkpoints.parts import (
    SCALER_NAME,
)
from notebook_accel.train.checkpoints.serialization import (
    save,
)
from notebook_accel.train.checkpoints.weights import (
    MODEL_NAME,
    SAFE_WEIGHTS_INDEX_NAME,
    SAFE_WEIGHTS_NAME,
    SAFE_WEIGHTS_PATTERN_NAME,
    WEIGHTS_INDEX_NAME,
    WEIGHTS_NAME,
    WEIGHTS_PATTERN_NAME,
)
from notebook_accel.train.data import (
    DataLoaderDispatcher,
    prepare_data_loader,
    skip_first_batches,
)
from notebook_accel.train.helpers.environ import (
    parse_choice_from_env,
)
from notebook_accel.train.helpers.parallel_models import (
    convert_outputs_to_fp32,
    extract_model_from_parallel,
)
from notebook_accel.train.helpers.version_checks import (
    is_torch_version,
)
from notebook_accel.train.models.batch_size import (
    release_memory,
)
from notebook_accel.train.options.enums import (
    DistributedType,
    DynamoBackend,
    LoggerType,
    PrecisionType,
    RNGType,
)
from notebook_accel.train.options.fsdp import (
    FullyShardedDataParallelPlugin,
)
from notebook_accel.train.options.parallelism import (
    ParallelismConfig,
)
from notebook_accel.train.options.plugins import (
    AORecipeKwargs,
    AutocastKwargs,
    DataLoaderConfiguration,
    DistributedDataParallelKwargs,
    GradScalerKwargs,
    GradientAccumulationPlugin,
    InitProcessGroupKwargs,
    KwargsHandler,
    ProfileKwargs,
    ProjectConfiguration,
    TorchDynamoPlugin,
)
from notebook_accel.train.ranks.collectives import (
    gather,
    gather_object,
    pad_across_processes,
    reduce,
)
from notebook_accel.train.ranks.gradient_state import (
    GradientState,
)
from notebook_accel.train.ranks.logging import (
    get_logger,
)
from notebook_accel.train.ranks.state import (
    AcceleratorState,
    PartialState,
    wait_for_everyone,
)
from notebook_accel.train.steps.optimizer import (
    AcceleratedOptimizer,
)
from notebook_accel.train.steps.profiling import (
    PROFILE_PATTERN_NAME,
)
from notebook_accel.train.steps.scheduler import (
    AcceleratedScheduler,
)
from notebook_accel.train.tensors.pytree import (
    recursively_apply,
)
from notebook_accel.train.trackers import (
    GeneralTracker,
    filter_trackers,
)

__all__ = [
    "AORecipeKwargs",
    "AcceleratedOptimizer",
    "AcceleratedScheduler",
    "Accelerator",
    "AcceleratorState",
    "AutocastKwargs",
    "DataLoaderConfiguration",
    "DataLoaderDispatcher",
    "DistributedDataParallelKwargs",
    "DistributedType",
    "DynamoBackend",
    "FullyShardedDataParallelPlugin",
    "GeneralTracker",
    "GradScalerKwargs",
    "GradientAccumulationPlugin",
    "GradientState",
    "InitProcessGroupKwargs",
    "KwargsHandler",
    "LoggerType",
    "MODEL_NAME",
    "PROFILE_PATTERN_NAME",
    "ParallelismConfig",
    "PartialState",
    "PrecisionType",
    "ProfileKwargs",
    "ProjectConfiguration",
    "RNGType",
    "SAFE_WEIGHTS_INDEX_NAME",
    "SAFE_WEIGHTS_NAME",
    "SAFE_WEIGHTS_PATTERN_NAME",
    "SCALER_NAME",
    "TorchDynamoPlugin",
    "WEIGHTS_INDEX_NAME",
    "WEIGHTS_NAME",
    "WEIGHTS_PATTERN_NAME",
    "convert_outputs_to_fp32",
    "extract_model_from_parallel",
    "filter_trackers",
    "gather",
    "gather_object",
    "get_logger",
    "is_torch_version",
    "pad_across_processes",
    "parse_choice_from_env",
    "prepare_data_loader",
    "recursively_apply",
    "reduce",
    "release_memory",
    "save",
    "skip_first_batches",
    "wait_for_everyone",
]
