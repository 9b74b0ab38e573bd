# Written by scripts/generate from notebook_accel/exports.py.
from notebook_accel.train.accelerator.accelerator import Accelerator as Accelerator
from notebook_accel.train.checkpoints.parts import SCALER_NAME as SCALER_NAME
from notebook_accel.train.checkpoints.serialization import save as save
from notebook_accel.train.checkpoints.weights import MODEL_NAME as MODEL_NAME, SAFE_WEIGHTS_INDEX_NAME as SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME as SAFE_WEIGHTS_NAME, SAFE_WEIGHTS_PATTERN_NAME as SAFE_WEIGHTS_PATTERN_NAME, WEIGHTS_INDEX_NAME as WEIGHTS_INDEX_NAME, WEIGHTS_NAME as WEIGHTS_NAME, WEIGHTS_PATTERN_NAME as WEIGHTS_PATTERN_NAME
from notebook_accel.train.data.dispatching_loader import DataLoaderDispatcher as DataLoaderDispatcher
from notebook_accel.train.data.prepare import prepare_data_loader as prepare_data_loader, skip_first_batches as skip_first_batches
from notebook_accel.train.helpers.checkpoint_pieces import load_accelerator_state as load_accelerator_state, load_custom_state as load_custom_state, load_fsdp_model as load_fsdp_model, load_fsdp_optimizer as load_fsdp_optimizer, save_accelerator_state as save_accelerator_state, save_custom_state as save_custom_state, save_fsdp_model as save_fsdp_model, save_fsdp_optimizer as save_fsdp_optimizer
from notebook_accel.train.helpers.environ import parse_choice_from_env as parse_choice_from_env
from notebook_accel.train.helpers.parallel_models import convert_outputs_to_fp32 as convert_outputs_to_fp32
from notebook_accel.train.helpers.probes import is_torch_version as is_torch_version
from notebook_accel.train.models.batch_size import release_memory as release_memory
from notebook_accel.train.models.parallel_wrappers import extract_model_from_parallel as extract_model_from_parallel
from notebook_accel.train.options.enums import DistributedType as DistributedType, DynamoBackend as DynamoBackend, LoggerType as LoggerType, PrecisionType as PrecisionType, RNGType as RNGType
from notebook_accel.train.options.fsdp import FullyShardedDataParallelPlugin as FullyShardedDataParallelPlugin
from notebook_accel.train.options.parallelism import ParallelismConfig as ParallelismConfig
from notebook_accel.train.options.plugins import AORecipeKwargs as AORecipeKwargs, AutocastKwargs as AutocastKwargs, DataLoaderConfiguration as DataLoaderConfiguration, DistributedDataParallelKwargs as DistributedDataParallelKwargs, GradScalerKwargs as GradScalerKwargs, GradientAccumulationPlugin as GradientAccumulationPlugin, InitProcessGroupKwargs as InitProcessGroupKwargs, KwargsHandler as KwargsHandler, ProfileKwargs as ProfileKwargs, ProjectConfiguration as ProjectConfiguration, TorchDynamoPlugin as TorchDynamoPlugin
from notebook_accel.train.ranks.collectives import gather as gather, gather_object as gather_object, pad_across_processes as pad_across_processes, reduce as reduce
from notebook_accel.train.ranks.gradient_state import GradientState as GradientState
from notebook_accel.train.ranks.logging import get_logger as get_logger
from notebook_accel.train.ranks.state import AcceleratorState as AcceleratorState, PartialState as PartialState, wait_for_everyone as wait_for_everyone
from notebook_accel.train.steps.optimizer import AcceleratedOptimizer as AcceleratedOptimizer
from notebook_accel.train.steps.profiling import PROFILE_PATTERN_NAME as PROFILE_PATTERN_NAME
from notebook_accel.train.steps.scheduler import AcceleratedScheduler as AcceleratedScheduler
from notebook_accel.train.tensors.pytree import recursively_apply as recursively_apply
from notebook_accel.train.trackers.active_trackers import filter_trackers as filter_trackers
from notebook_accel.train.trackers.base import GeneralTracker as GeneralTracker
