# Written by scripts/generate from notebook_accel/exports.py.
from . import accelerator as accelerator, big_modeling as big_modeling, checkpointing as checkpointing, commands as commands, data_loader as data_loader, hooks as hooks, launchers as launchers, local_sgd as local_sgd, logging as logging, optimizer as optimizer, parallelism_config as parallelism_config, scheduler as scheduler, state as state, test_utils as test_utils, tracking as tracking, utils as utils
from accelerate.big_modeling import cpu_offload as cpu_offload, disk_offload as disk_offload, dispatch_model as dispatch_model, infer_auto_device_map as infer_auto_device_map, load_checkpoint_and_dispatch as load_checkpoint_and_dispatch
from notebook_accel.errors import CheckpointError as CheckpointError, ConfigurationError as ConfigurationError, DistributedOperationException as DistributedOperationException, HardwareError as HardwareError, JobCancelledError as JobCancelledError, JobEndedError as JobEndedError, JobLostError as JobLostError, LaunchError as LaunchError, NotebookAccelError as NotebookAccelError, PayloadError as PayloadError, PreemptedError as PreemptedError, RankError as RankError, RankTimeoutError as RankTimeoutError, UnsupportedNameError as UnsupportedNameError
from notebook_accel.insight.comparison import compare as compare
from notebook_accel.launch.driver.attach import attach as attach, jobs as jobs
from notebook_accel.launch.driver.launcher import debug_launcher as debug_launcher, notebook_launcher as notebook_launcher
from notebook_accel.launch.driver.map_on_ranks import map_on_ranks as map_on_ranks
from notebook_accel.launch.job.job import Job as Job
from notebook_accel.launch.job.rules import when as when
from notebook_accel.launch.rank.report import report as report
from notebook_accel.notebook.views import set_view as set_view
from notebook_accel.rehearsal_flag import rehearsing as rehearsing
from notebook_accel.runs.rehearsal import largest as largest, rehearse as rehearse
from notebook_accel.runs.scaling import scaling as scaling
from notebook_accel.runs.sweep import sweep as sweep
from notebook_accel.train.accelerator.accelerator import Accelerator as Accelerator
from notebook_accel.train.accelerator.local_sgd import LocalSGD as LocalSGD
from notebook_accel.train.checkpoints.weights import SAFE_WEIGHTS_NAME as SAFE_WEIGHTS_NAME, load_checkpoint_in_model as load_checkpoint_in_model
from notebook_accel.train.data.prepare import prepare_data_loader as prepare_data_loader, skip_first_batches as skip_first_batches
from notebook_accel.train.data.samplers import SeedableRandomSampler as SeedableRandomSampler
from notebook_accel.train.helpers.cpu_offload import cpu_offload_with_hook as cpu_offload_with_hook
from notebook_accel.train.helpers.empty_models import init_empty_weights as init_empty_weights, init_on_device as init_on_device
from notebook_accel.train.models.batch_size import find_executable_batch_size as find_executable_batch_size, release_memory as release_memory
from notebook_accel.train.options.deepspeed import DeepSpeedPlugin as DeepSpeedPlugin
from notebook_accel.train.options.enums import DDPCommunicationHookType as DDPCommunicationHookType, DistributedType as DistributedType, DynamoBackend as DynamoBackend, LoggerType as LoggerType, PrecisionType as PrecisionType, RNGType as RNGType
from notebook_accel.train.options.fsdp import FullyShardedDataParallelPlugin as FullyShardedDataParallelPlugin
from notebook_accel.train.options.parallelism import ParallelismConfig as ParallelismConfig
from notebook_accel.train.options.plugins import AORecipeKwargs as AORecipeKwargs, AutocastKwargs as AutocastKwargs, DataLoaderConfiguration as DataLoaderConfiguration, DistributedDataParallelKwargs as DistributedDataParallelKwargs, GradScalerKwargs as GradScalerKwargs, GradientAccumulationPlugin as GradientAccumulationPlugin, InitProcessGroupKwargs as InitProcessGroupKwargs, ProfileKwargs as ProfileKwargs, ProjectConfiguration as ProjectConfiguration, TorchDynamoPlugin as TorchDynamoPlugin, TorchTensorParallelPlugin as TorchTensorParallelPlugin
from notebook_accel.train.ranks.collectives import broadcast as broadcast, broadcast_object_list as broadcast_object_list, gather as gather, gather_object as gather_object, pad_across_processes as pad_across_processes, reduce as reduce
from notebook_accel.train.ranks.gradient_state import GradientState as GradientState
from notebook_accel.train.ranks.logging import get_logger as get_logger
from notebook_accel.train.ranks.seeds import set_seed as set_seed, synchronize_rng_states as synchronize_rng_states
from notebook_accel.train.ranks.state import AcceleratorState as AcceleratorState, PartialState as PartialState
from notebook_accel.train.steps.optimizer import AcceleratedOptimizer as AcceleratedOptimizer
from notebook_accel.train.steps.scheduler import AcceleratedScheduler as AcceleratedScheduler
from notebook_accel.train.tensors.pytree import find_batch_size as find_batch_size, send_to_device as send_to_device
from notebook_accel.train.tensors.rows import concatenate as concatenate
from notebook_accel.train.trackers.base import GeneralTracker as GeneralTracker, on_main_process as on_main_process
from IPython.core.interactiveshell import InteractiveShell
__version__: str
def load_ipython_extension(shell: InteractiveShell) -> None: ...
def unload_ipython_extension(shell: InteractiveShell) -> None: ...
