# Written by scripts/generate from notebook_accel/exports.py.

from . import accelerator as accelerator
from . import big_modeling as big_modeling
from . import checkpointing as checkpointing
from . import data_loader as data_loader
from . import launchers as launchers
from . import local_sgd as local_sgd
from . import logging as logging
from . import optimizer as optimizer
from . import parallelism_config as parallelism_config
from . import scheduler as scheduler
from . import state as state
from . import tracking as tracking
from . import utils as utils
from notebook_accel.errors import (
    CheckpointError,
    ConfigurationError,
    DistributedOperationException,
    HardwareError,
    JobCancelledError,
    JobEndedError,
    JobLostError,
    LaunchError,
    NotebookAccelError,
    PayloadError,
    PreemptedError,
    RankError,
    RankTimeoutError,
    UnsupportedNameError,
)
from notebook_accel.insight.comparison import (
    compare,
)
from notebook_accel.insight.scaling import (
    scaling,
)
from notebook_accel.launch.driver.attach import (
    attach,
    jobs,
)
from notebook_accel.launch.driver.launcher import (
    debug_launcher,
    notebook_launcher,
)
from notebook_accel.launch.job.job import (
    Job,
)
from notebook_accel.launch.rank.report import (
    report,
)
from notebook_accel.notebook.views import (
    set_view,
)
from notebook_accel.train.accelerator.accelerator import (
    Accelerator,
)
from notebook_accel.train.accelerator.local_sgd import (
    LocalSGD,
)
from notebook_accel.train.checkpoints.weights import (
    SAFE_WEIGHTS_NAME,
    load_checkpoint_in_model,
)
from notebook_accel.train.data import (
    SeedableRandomSampler,
    prepare_data_loader,
    skip_first_batches,
)
from notebook_accel.train.helpers.empty_models import (
    init_empty_weights,
    init_on_device,
)
from notebook_accel.train.models.batch_size import (
    find_executable_batch_size,
    release_memory,
)
from notebook_accel.train.options.enums import (
    DDPCommunicationHookType,
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
    ProfileKwargs,
    ProjectConfiguration,
    TorchDynamoPlugin,
    TorchTensorParallelPlugin,
)
from notebook_accel.train.ranks.collectives import (
    broadcast,
    broadcast_object_list,
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
from notebook_accel.train.ranks.seeds import (
    set_seed,
    synchronize_rng_states,
)
from notebook_accel.train.ranks.state import (
    AcceleratorState,
    PartialState,
)
from notebook_accel.train.steps.optimizer import (
    AcceleratedOptimizer,
)
from notebook_accel.train.steps.scheduler import (
    AcceleratedScheduler,
)
from notebook_accel.train.tensors.pytree import (
    find_batch_size,
    send_to_device,
)
from notebook_accel.train.tensors.rows import (
    concatenate,
)
from notebook_accel.train.trackers import (
    GeneralTracker,
    on_main_process,
)

from IPython.core.interactiveshell import InteractiveShell

__version__: str

def load_ipython_extension(shell: InteractiveShell) -> None: ...
def unload_ipython_extension(shell: InteractiveShell) -> None: ...

__all__ = [
    "AORecipeKwargs",
    "AcceleratedOptimizer",
    "AcceleratedScheduler",
    "Accelerator",
    "AcceleratorState",
    "AutocastKwargs",
    "CheckpointError",
    "ConfigurationError",
    "DDPCommunicationHookType",
    "DataLoaderConfiguration",
    "DistributedDataParallelKwargs",
    "DistributedOperationException",
    "DistributedType",
    "DynamoBackend",
    "FullyShardedDataParallelPlugin",
    "GeneralTracker",
    "GradScalerKwargs",
    "GradientAccumulationPlugin",
    "GradientState",
    "HardwareError",
    "InitProcessGroupKwargs",
    "Job",
    "JobCancelledError",
    "JobEndedError",
    "JobLostError",
    "LaunchError",
    "LocalSGD",
    "LoggerType",
    "NotebookAccelError",
    "ParallelismConfig",
    "PartialState",
    "PayloadError",
    "PrecisionType",
    "PreemptedError",
    "ProfileKwargs",
    "ProjectConfiguration",
    "RNGType",
    "RankError",
    "RankTimeoutError",
    "SAFE_WEIGHTS_NAME",
    "SeedableRandomSampler",
    "TorchDynamoPlugin",
    "TorchTensorParallelPlugin",
    "UnsupportedNameError",
    "attach",
    "broadcast",
    "broadcast_object_list",
    "compare",
    "concatenate",
    "debug_launcher",
    "find_batch_size",
    "find_executable_batch_size",
    "gather",
    "gather_object",
    "get_logger",
    "init_empty_weights",
    "init_on_device",
    "jobs",
    "load_checkpoint_in_model",
    "notebook_launcher",
    "on_main_process",
    "pad_across_processes",
    "prepare_data_loader",
    "reduce",
    "release_memory",
    "report",
    "scaling",
    "send_to_device",
    "set_seed",
    "set_view",
    "skip_first_batches",
    "synchronize_rng_states",
]
