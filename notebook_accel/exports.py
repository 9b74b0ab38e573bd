"""The public names: one row for each module that defines some, in the order of the folders.

Names that touch no ranks, such as `dispatch_model`, are Accelerate's own if it is installed (`ACCELERATES`).

The following are generated from the table: `__all__` and the lazy imports of the package, the modules with the names of
Accelerate's (`accelerate_names.py`), and the `.pyi` files that describe both to type checkers (`scripts/generate`).
"""

from __future__ import annotations

import functools
import importlib
from typing import Any, NamedTuple

from notebook_accel import garbage_collection


class Row(NamedTuple):
    """Public names of one module."""

    module: str
    """The module that defines the names; or a folder that re-exports them, or a module of Accelerate."""
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
    Row("launch.driver.map_on_ranks", "", "map_on_ranks"),
    Row("launch.driver.launcher", "launchers", "debug_launcher notebook_launcher"),
    Row("launch.job.job", "", "Job"),
    Row("launch.job.rules", "", "when"),
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
    Row("train.data.cursor", "data_loader", "", "SkipBatchSampler"),
    Row("train.data.dispatching_loader", "data_loader", "", "DataLoaderDispatcher"),
    Row("train.data.iterable_shard", "data_loader", "", "IterableDatasetShard"),
    Row("train.data.loader", "data_loader", "", "DataLoaderShard DataLoaderStateMixin SkipDataLoader"),
    Row("train.data.prepare", "data_loader", "prepare_data_loader skip_first_batches"),
    Row("train.data.samplers", "data_loader", "SeedableRandomSampler", "get_sampler"),
    Row("train.data.sharding", "data_loader", "", "BatchSamplerShard"),
    Row("train.helpers.basic_config", "commands.config.config_args", "",
        "cache_dir default_config_file default_json_config_file default_yaml_config_file"),
    Row("train.helpers.basic_config", "utils.other", "", "write_basic_config"),
    Row("train.helpers.empty_models", "big_modeling", "init_empty_weights init_on_device"),
    Row("train.helpers.environ", "utils.environment", "",
        """are_libraries_initialized clear_environment get_int_from_env parse_choice_from_env parse_flag_from_env
        patch_environment str_to_bool"""),
    Row("train.helpers.checkpoint_pieces", "checkpointing", "",
        "load_accelerator_state load_custom_state save_accelerator_state save_custom_state"),
    Row("train.helpers.checkpoint_pieces", "utils.fsdp_utils", "",
        "load_fsdp_model load_fsdp_optimizer merge_fsdp_weights save_fsdp_model save_fsdp_optimizer"),
    Row("train.helpers.module_tensors", "utils.modeling", "",
        """calculate_maximum_sizes compute_module_sizes convert_file_size_to_int dtype_byte_size find_tied_parameters
        has_offloaded_params id_tensor_storage load_state_dict named_module_tensors retie_parameters
        set_module_tensor_to_device"""),
    Row("train.helpers.objects", "utils.other", "",
        """check_os_kernel clean_state_dict_for_safetensors convert_bytes get_pretty_name is_port_in_use merge_dicts
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
    Row("train.options.deepspeed", "utils.dataclasses", "DeepSpeedPlugin"),
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
        "broadcast broadcast_object_list gather gather_object pad_across_processes reduce",
        "CannotPadNestedTensorWarning copy_tensor_to_devices"),
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
    Row("train.trackers.active_trackers", "tracking", "",
        "filter_trackers get_available_trackers register_tracker_class"),
    Row("train.trackers.aim", "tracking", "", "AimTracker"),
    Row("train.trackers.base", "tracking", "GeneralTracker on_main_process"),
    Row("train.trackers.clearml", "tracking", "", "ClearMLTracker"),
    Row("train.trackers.comet", "tracking", "", "CometMLTracker"),
    Row("train.trackers.dvclive", "tracking", "", "DVCLiveTracker"),
    Row("train.trackers.mlflow", "tracking", "", "MLflowTracker"),
    Row("train.trackers.swanlab", "tracking", "", "SwanLabTracker"),
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
        SAFE_WEIGHTS_PATTERN_NAME SCALER_NAME TorchDynamoPlugin WEIGHTS_INDEX_NAME WEIGHTS_NAME WEIGHTS_PATTERN_NAME
        convert_outputs_to_fp32 extract_model_from_parallel filter_trackers gather gather_object get_logger
        is_torch_version load_accelerator_state load_custom_state load_fsdp_model load_fsdp_optimizer
        pad_across_processes parse_choice_from_env prepare_data_loader recursively_apply reduce release_memory save
        save_accelerator_state save_custom_state save_fsdp_model save_fsdp_optimizer skip_first_batches
        wait_for_everyone""",
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


ACCELERATES = (
    Row("accelerate.big_modeling", "big_modeling",
        "cpu_offload disk_offload dispatch_model infer_auto_device_map load_checkpoint_and_dispatch",
        "attach_layerwise_casting_hooks"),
    Row("accelerate.checkpointing", "checkpointing", "", "load_model"),
    Row("accelerate.data_loader", "data_loader", "", "_PYTORCH_DATALOADER_KWARGS"),
    Row("accelerate.hooks", "hooks", "", """AlignDevicesHook LayerwiseCastingHook ModelHook SequentialHook
        UserCpuOffloadHook add_hook_to_module attach_align_device_hook attach_align_device_hook_on_blocks
        attach_execution_device_hook remove_hook_from_module remove_hook_from_submodules"""),
    Row("accelerate.optimizer", "optimizer", "", "move_to_device patch_optimizer_step"),
    Row("accelerate.state", "state", "", "SharedDict ThreadLocalSharedDict do_nothing"),
    Row("accelerate.test_utils.testing", "test_utils.testing", "", """DEFAULT_LAUNCH_COMMAND MockingTestCase
        TempDirTestCase assert_exception capture_call_output device_count execute_subprocess_async get_launch_command
        get_torch_dist_unique_port memory_allocated_func path_in_accelerate_package pytest_xdist_worker_id require_bnb
        require_comet_ml require_cpu require_cuda require_cuda_or_hpu require_cuda_or_xpu require_deepspeed
        require_fp16 require_fp8 require_huggingface_suite require_mlu require_mps require_multi_device
        require_multi_gpu require_multi_gpu_or_xpu require_multi_xpu require_musa require_non_cpu require_non_hpu
        require_non_torch_xla require_non_xpu require_npu require_peft require_pippy require_sdaa require_single_device
        require_single_gpu require_single_xpu require_tensorboard require_torch_min_version require_torchao
        require_torchvision require_tpu require_transformer_engine require_transformer_engine_mxfp8 require_wandb
        require_xpu run_first torch_device"""),
    Row("accelerate.test_utils.training", "test_utils.training", "", "RegressionDataset RegressionModel"),
    Row("accelerate.utils.ao", "utils.ao", "", """convert_model_to_fp8_ao filter_first_and_last_linear_layers
        filter_linear_layers find_first_last_linear_layers has_ao_layers torchao_required"""),
    Row("accelerate.utils.bnb", "utils.bnb", "", """get_keys_to_not_convert get_parameter_device
        get_quantized_model_device_map has_4bit_bnb_layers load_and_quantize_model quantize_and_offload_8bit
        replace_with_bnb_layers"""),
    Row("accelerate.utils.constants", "utils.constants", "", """BETA_CP_AVAILABLE_PYTORCH_VERSION
        BETA_SP_AVAILABLE_DEEPSPEED_VERSION BETA_TP_AVAILABLE_PYTORCH_VERSION BETA_TP_AVAILABLE_TRANSFORMERS_VERSION
        CUDA_DISTRIBUTED_TYPES DEEPSPEED_MULTINODE_LAUNCHERS DTENSOR_PYTORCH_VERSION
        ELASTIC_LOG_LINE_PREFIX_TEMPLATE_PYTORCH_VERSION FSDP2_PYTORCH_VERSION FSDP2_STATE_DICT_TYPE
        FSDP_PYTORCH_VERSION MITA_PROFILING_AVAILABLE_PYTORCH_VERSION SAGEMAKER_PARALLEL_EC2_INSTANCES
        SAGEMAKER_PYTHON_VERSION SAGEMAKER_PYTORCH_VERSION SAGEMAKER_TRANSFORMERS_VERSION
        SUPPORTED_PYTORCH_LAYERS_FOR_UPCASTING TORCH_DISTRIBUTED_OPERATION_TYPES TORCH_DYNAMO_MODES
        TORCH_LAUNCH_PARAMS XPU_PROFILING_AVAILABLE_PYTORCH_VERSION"""),
    Row("accelerate.utils.dataclasses", "utils.dataclasses", "", """BaseEnum BnbQuantizationConfig ComputeEnvironment
        CustomDtype EnumWithContains MODEL_CONFIGS_TO_MEGATRON_PARSERS SageMakerDistributedType
        add_model_config_to_megatron_parser get_module_class_from_name parse_bert_config parse_glm4_moe_config
        parse_gpt2_config parse_llama_config parse_t5_config"""),
    Row("accelerate.utils.environment", "utils.environment", "", """CPUInformation check_cuda_p2p_ib_support
        convert_dict_to_env_variables get_cpu_distributed_information get_current_device_type get_driver_version
        get_gpu_info override_numa_affinity purge_accelerate_environment set_numa_affinity"""),
    Row("accelerate.utils.fsdp_utils", "utils.fsdp_utils", "", """disable_fsdp_ram_efficient_loading
        enable_fsdp_ram_efficient_loading ensure_weights_retied fsdp2_canonicalize_names
        fsdp2_switch_optimizer_parameters get_fsdp2_grad_scaler get_parameters_from_modules"""),
    Row("accelerate.utils.imports", "utils.imports", "", "USE_TORCH_XLA is_bitsandbytes_multi_backend_available"),
    Row("accelerate.utils.launch", "utils.launch", "", "env_var_path_add"),
    Row("accelerate.utils.modeling", "utils.modeling", "", """align_module_device check_device_map check_device_same
        check_tied_parameters_in_config check_tied_parameters_on_same_device clean_device_map
        compute_module_total_buffer_size fallback_allocate get_balanced_memory get_grad_scaler get_max_layer_size
        get_max_memory get_module_leaves get_module_size_with_ties get_non_persistent_buffers
        get_state_dict_from_offload get_state_dict_offloaded_model load_offloaded_weights"""),
    Row("accelerate.utils.offload", "utils.offload", "", """OffloadedWeightsLoader PrefixedDataset
        extract_submodules_state_dict load_offloaded_weight offload_state_dict offload_weight save_offload_index"""),
    Row("accelerate.utils.operations", "utils.operations", "", """ConvertOutputsToFp32 TENSOR_INT_TO_DTYPE
        TENSOR_TYPE_TO_INT get_shape is_torch_xpu_tensor pad_input_tensors"""),
    Row("accelerate.utils.other", "utils.other", "", """TORCH_SAFE_GLOBALS compile_regions_fsdp2 get_free_port
        get_model_tp_size has_repeated_blocks is_repeated_blocks"""),
    Row("accelerate.utils.torch_xla", "utils.torch_xla", "", "install_xla"),
    Row("train.helpers.cpu_offload", "big_modeling", "cpu_offload_with_hook"),
    Row("train.helpers.cpu_offload", "hooks", "", "CpuOffload"),
)  # fmt: skip
"""Names that are Accelerate's own, since they touch no ranks. They are available if Accelerate is installed.

The package does not import Accelerate before one of them is used. `*` does not import them.
"""


def path_of(module: str) -> str:
    """The full name of the module that a row names."""
    return module if module.startswith("accelerate.") else f"{__package__}.{module}"


def load(name: str, module: str) -> Any:
    """Imports a name from a module of the package, or of Accelerate."""
    with garbage_collection.paused():
        return getattr(importlib.import_module(path_of(module)), name)


@functools.cache
def of_accelerate() -> dict[str, str]:
    """The names of `ACCELERATES`, each with the module that it is imported from."""
    return {name: row.module for row in ACCELERATES for name in row.names}


def exported() -> dict[str, str]:
    """The names that the package itself exports, each with the module that it is imported from."""
    return {name: row.module for row in TABLE for name in row.exported.split()}


def accelerate_modules() -> dict[str, dict[str, str]]:
    """For each module of Accelerate, its names, each with the module that it is imported from.

    `utils` has all names of the modules in it.
    """
    found = _by_module(TABLE)
    known = {name: row.module for row in TABLE for name in row.names}
    for module, names in ALSO.items():
        found.setdefault(module, {}).update({name: known[name] for name in names.split()})
    return found


def of_accelerate_by_module() -> dict[str, dict[str, str]]:
    """The same for the names of `ACCELERATES`; the empty module is the package itself."""
    return {"": {name: row.module for row in ACCELERATES for name in row.exported.split()}, **_by_module(ACCELERATES)}


def _by_module(table: tuple[Row, ...]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for row in table:
        if row.accelerate:
            found.setdefault(row.accelerate, {}).update(dict.fromkeys(row.names, row.module))
        if row.accelerate.startswith("utils."):
            found.setdefault("utils", {}).update(dict.fromkeys(row.names, row.module))
    return found
