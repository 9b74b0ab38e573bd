"""The public names: one row for each module that defines some, in the order of the folders.

The following are generated from the table: `__all__` and the lazy imports of the package, the modules with the names of
Accelerate's (`accelerate_names.py`), and the `.pyi` files that describe both to type checkers (`scripts/generate`).
"""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

from notebook_accel import garbage_collection


class Row(NamedTuple):
    """Public names of one module."""

    module: str
    """The module that defines the names, or the folder whose `__init__` re-exports them."""
    accelerate: str
    """The module of Accelerate that has the same names; empty if Accelerate has no equivalent."""
    exported: str
    """The names that the package `notebook_accel` itself exports, space-separated."""
    accelerate_only: str = ""
    """The names that only the module with Accelerate's name exports (and `utils`, if that module is in it)."""

    @property
    def names(self) -> list[str]:
        return f"{self.exported} {self.accelerate_only}".split()


TABLE = (
    Row("errors", "", """CheckpointError ConfigurationError HardwareError JobCancelledError JobEndedError JobLostError
        LaunchError NotebookAccelError PayloadError PreemptedError RankError RankTimeoutError UnsupportedNameError"""),
    Row("errors", "utils.operations", "DistributedOperationException"),
    Row("insight.comparison", "", "compare"),
    Row("launch.driver.attach", "", "attach jobs"),
    Row("launch.driver.launcher", "launchers", "debug_launcher notebook_launcher"),
    Row("launch.job.job", "", "Job"),
    Row("launch.rank.report", "", "report"),
    Row("notebook.views", "", "set_view"),
    Row("rehearsal_flag", "", "rehearsing"),
    Row("runs.rehearsal", "", "largest rehearse"),
    Row("runs.scaling", "", "scaling"),
    Row("runs.sweep", "", "sweep"),
    Row("train.accelerator.accelerator", "accelerator", "Accelerator"),
    Row("train.accelerator.local_sgd", "local_sgd", "LocalSGD"),
    Row("train.checkpoints.parts", "utils.constants", "",
        "OPTIMIZER_NAME RNG_STATE_NAME SAMPLER_NAME SCALER_NAME SCHEDULER_NAME"),
    Row("train.checkpoints.serialization", "utils.other", "", "load save"),
    Row("train.checkpoints.weights", "utils.constants", "SAFE_WEIGHTS_NAME",
        """MODEL_NAME SAFE_MODEL_NAME SAFE_WEIGHTS_INDEX_NAME SAFE_WEIGHTS_PATTERN_NAME WEIGHTS_INDEX_NAME WEIGHTS_NAME
        WEIGHTS_PATTERN_NAME"""),
    Row("train.checkpoints.weights", "utils.modeling", "load_checkpoint_in_model"),
    Row("train.data", "data_loader", "SeedableRandomSampler prepare_data_loader skip_first_batches",
        """BatchSamplerShard DataLoaderDispatcher DataLoaderShard DataLoaderStateMixin IterableDatasetShard
        SkipBatchSampler SkipDataLoader get_sampler"""),
    Row("train.helpers.basic_config", "utils.other", "", "write_basic_config"),
    Row("train.helpers.empty_models", "big_modeling", "init_empty_weights init_on_device"),
    Row("train.helpers.environ", "utils.environment", "",
        """are_libraries_initialized clear_environment get_int_from_env parse_choice_from_env parse_flag_from_env
        patch_environment str_to_bool"""),
    Row("train.helpers.fsdp_files", "utils.fsdp_utils", "", "merge_fsdp_weights"),
    Row("train.helpers.module_tensors", "utils.modeling", "",
        """calculate_maximum_sizes compute_module_sizes convert_file_size_to_int dtype_byte_size find_tied_parameters
        has_offloaded_params id_tensor_storage load_state_dict named_module_tensors retie_parameters
        set_module_tensor_to_device"""),
    Row("train.helpers.objects", "utils.other", "",
        """clean_state_dict_for_safetensors convert_bytes get_pretty_name is_port_in_use merge_dicts
        recursive_getattr"""),
    Row("train.helpers.parallel_models", "utils.modeling", "", "is_peft_model"),
    Row("train.helpers.parallel_models", "utils.operations", "", "convert_outputs_to_fp32"),
    Row("train.helpers.parallel_models", "utils.other", "",
        "get_module_children_bottom_up is_compiled_module model_has_dtensor"),
    Row("train.helpers.probes", "test_utils.testing", "", "get_backend"),
    Row("train.helpers.probes", "utils.constants", "", "STR_OPERATION_TO_FUNC"),
    Row("train.helpers.probes", "utils.environment", "", "check_cuda_fp8_capability"),
    Row("train.helpers.probes", "utils.imports", "",
        """is_4bit_bnb_available is_8bit_bnb_available is_aim_available is_amdsmi_available is_bf16_available
        is_bnb_available is_boto3_available is_clearml_available is_comet_ml_available is_cuda_available
        is_datasets_available is_deepspeed_available is_dvclive_available is_fp16_available is_fp8_available
        is_habana_gaudi1 is_hpu_available is_import_timer_available is_lomo_available is_matplotlib_available
        is_megatron_lm_available is_mlflow_available is_mlu_available is_mps_available is_msamp_available
        is_musa_available is_neuron_available is_npu_available is_numpy_available is_pandas_available
        is_peft_available is_pippy_available is_pynvml_available is_pytest_available is_rich_available
        is_rocm_available is_sagemaker_available is_schedulefree_available is_sdaa_available is_swanlab_available
        is_tensorboard_available is_timm_available is_torch_distributed_available is_torch_xla_available
        is_torchao_available is_torchdata_available is_torchdata_stateful_dataloader_available
        is_torchvision_available is_tqdm_available is_trackio_available is_transformer_engine_available
        is_transformer_engine_mxfp8_available is_transformers_available is_triton_available is_wandb_available
        is_weights_only_available is_xccl_available is_xpu_available"""),
    Row("train.helpers.probes", "utils.versions", "", "compare_versions is_torch_version"),
    Row("train.helpers.rank_tqdm", "utils.tqdm", "", "tqdm"),
    Row("train.models.batch_size", "utils.memory", "find_executable_batch_size release_memory",
        "clear_device_cache should_reduce_batch_size"),
    Row("train.models.compiling", "utils.other", "", "compile_regions has_compiled_regions"),
    Row("train.models.parallel_wrappers", "utils.other", "", "extract_model_from_parallel"),
    Row("train.models.precision", "utils.operations", "", "convert_to_fp32"),
    Row("train.options.fsdp", "utils.constants", "",
        "FSDP_AUTO_WRAP_POLICY FSDP_BACKWARD_PREFETCH FSDP_MODEL_NAME FSDP_SHARDING_STRATEGY FSDP_STATE_DICT_TYPE"),
    Row("train.options.fsdp", "utils.dataclasses", "FullyShardedDataParallelPlugin"),
    Row("train.options.parallelism", "parallelism_config", "ParallelismConfig"),
    Row("train.options.parallelism", "utils.dataclasses", "", "TorchContextParallelConfig TorchTensorParallelConfig"),
    Row("train.options.enums", "utils.dataclasses",
        "DDPCommunicationHookType DistributedType DynamoBackend LoggerType PrecisionType RNGType", "FP8BackendType"),
    Row("train.options.plugins", "utils.dataclasses",
        """AORecipeKwargs AutocastKwargs DataLoaderConfiguration DistributedDataParallelKwargs GradScalerKwargs
        GradientAccumulationPlugin InitProcessGroupKwargs ProfileKwargs ProjectConfiguration TorchDynamoPlugin
        TorchTensorParallelPlugin""",
        "KwargsHandler"),
    Row("train.ranks.collectives", "utils.operations",
        "broadcast broadcast_object_list gather gather_object pad_across_processes reduce", "copy_tensor_to_devices"),
    Row("train.ranks.gradient_state", "state", "GradientState"),
    Row("train.ranks.logging", "logging", "get_logger", "MultiProcessAdapter"),
    Row("train.ranks.seeds", "utils.random", "set_seed synchronize_rng_states", "synchronize_rng_state"),
    Row("train.ranks.state", "state", "AcceleratorState PartialState", "is_initialized"),
    Row("train.ranks.state", "utils.other", "", "wait_for_everyone"),
    Row("train.steps.optimizer", "optimizer", "AcceleratedOptimizer"),
    Row("train.steps.profiling", "utils.constants", "", "PROFILE_PATTERN_NAME"),
    Row("train.steps.scheduler", "scheduler", "AcceleratedScheduler"),
    Row("train.tensors.rows", "utils.operations", "concatenate", "slice_tensors"),
    Row("train.tensors.pytree", "utils.dataclasses", "", "TensorInformation"),
    Row("train.tensors.pytree", "utils.operations", "find_batch_size send_to_device",
        """find_device get_data_structure honor_type ignorant_find_batch_size initialize_tensors is_namedtuple
        is_tensor_information is_torch_tensor listify recursively_apply"""),
    Row("train.trackers", "tracking", "GeneralTracker on_main_process",
        "filter_trackers get_available_trackers register_tracker_class"),
    Row("train.trackers.comet", "tracking", "", "CometMLTracker"),
    Row("train.trackers.mlflow", "tracking", "", "MLflowTracker"),
    Row("train.trackers.tensorboard", "tracking", "", "TensorBoardTracker"),
    Row("train.trackers.trackio", "tracking", "", "TrackioTracker"),
    Row("train.trackers.wandb", "tracking", "", "WandBTracker"),
)  # fmt: skip

ALSO = {
    "accelerator": """AORecipeKwargs AcceleratedOptimizer AcceleratedScheduler AcceleratorState AutocastKwargs
        DataLoaderConfiguration DataLoaderDispatcher DistributedDataParallelKwargs DistributedType DynamoBackend
        FullyShardedDataParallelPlugin GeneralTracker GradScalerKwargs GradientAccumulationPlugin GradientState
        InitProcessGroupKwargs KwargsHandler LoggerType MODEL_NAME PROFILE_PATTERN_NAME ParallelismConfig PartialState
        PrecisionType ProfileKwargs ProjectConfiguration RNGType SAFE_WEIGHTS_INDEX_NAME SAFE_WEIGHTS_NAME
        SAFE_WEIGHTS_PATTERN_NAME SCALER_NAME TorchDynamoPlugin WEIGHTS_INDEX_NAME WEIGHTS_NAME
        WEIGHTS_PATTERN_NAME convert_outputs_to_fp32 extract_model_from_parallel filter_trackers gather
        gather_object get_logger is_torch_version pad_across_processes parse_choice_from_env prepare_data_loader
        recursively_apply reduce release_memory save skip_first_batches wait_for_everyone""",
    "big_modeling": "find_tied_parameters load_checkpoint_in_model retie_parameters",
    "checkpointing": """MODEL_NAME OPTIMIZER_NAME RNG_STATE_NAME SAFE_MODEL_NAME SAFE_WEIGHTS_NAME SAMPLER_NAME
        SCALER_NAME SCHEDULER_NAME WEIGHTS_NAME""",
    "data_loader": """DistributedType GradientState PartialState RNGType broadcast
        broadcast_object_list concatenate find_batch_size get_data_structure initialize_tensors send_to_device
        slice_tensors synchronize_rng_states""",
    "launchers": "AcceleratorState PartialState PrecisionType patch_environment",
    "logging": "PartialState",
    "optimizer": "AcceleratorState DistributedType GradientState",
    "scheduler": "AcceleratorState GradientState",
    "state": "DistributedType DynamoBackend GradientAccumulationPlugin get_int_from_env parse_flag_from_env",
    "tracking": "LoggerType PartialState listify",
    "utils": "ParallelismConfig",
    "utils.dataclasses": """FSDP_AUTO_WRAP_POLICY FSDP_BACKWARD_PREFETCH FSDP_SHARDING_STRATEGY compare_versions
        is_torch_version str_to_bool""",
    "utils.fsdp_utils": "FSDP_MODEL_NAME OPTIMIZER_NAME SAFE_WEIGHTS_NAME WEIGHTS_NAME",
    "utils.imports": "compare_versions is_torch_version parse_flag_from_env patch_environment str_to_bool",
    "utils.memory": "is_cuda_available is_xpu_available",
    "utils.modeling": "SAFE_WEIGHTS_NAME WEIGHTS_INDEX_NAME WEIGHTS_NAME clear_device_cache is_torch_version",
    "utils.operations": "PartialState DistributedType TensorInformation",
    "utils.other": "PartialState id_tensor_storage is_torch_version",
    "utils.random": "AcceleratorState RNGType",
    "utils.versions": "STR_OPERATION_TO_FUNC",
}
"""For some of Accelerate's modules: names of other rows that they have too, since they use them.

Public code imports these from there as well.
"""


def load(name: str, module: str) -> Any:
    """Imports a name from a module of the package."""
    with garbage_collection.paused():
        return getattr(importlib.import_module(f"{__package__}.{module}"), name)


def exported() -> dict[str, str]:
    """The names that the package itself exports, each with the module that it is imported from."""
    return {name: row.module for row in TABLE for name in row.exported.split()}


def accelerate_modules() -> dict[str, dict[str, str]]:
    """For each module of Accelerate, its names, each with the module that it is imported from.

    `utils` has all names of the modules in it.
    """
    found: dict[str, dict[str, str]] = {}
    for row in TABLE:
        if row.accelerate:
            found.setdefault(row.accelerate, {}).update(dict.fromkeys(row.names, row.module))
        if row.accelerate.startswith("utils."):
            found.setdefault("utils", {}).update(dict.fromkeys(row.names, row.module))
    known = {name: row.module for row in TABLE for name in row.names}
    for module, names in ALSO.items():
        found.setdefault(module, {}).update({name: known[name] for name in names.split()})
    return found
