"""The names of Accelerate that this package does not have, and what to use instead: a row for each subject.

An import of one of them raises `UnsupportedNameError` with the advice. Read only when a name is missing.
"""

from __future__ import annotations

import functools
from typing import NamedTuple


class Refusal(NamedTuple):
    """Names that are missing for one reason."""

    subject: str
    """What they belong to, as the end of "it belongs to …"."""
    advice: str
    """Why it is not available, and what to use instead: one or two sentences."""
    names: str
    """Space-separated, from any of Accelerate's modules."""


TABLE = (
    Refusal(
        "DeepSpeed",
        "notebook-accel does not support DeepSpeed. FSDP2 also shards parameters, gradients, and optimizer states: "
        "pass fsdp_plugin=FullyShardedDataParallelPlugin() to the Accelerator, and torch's own optimizer and scheduler "
        "to prepare.",
        """DeepSpeedEngineWrapper DeepSpeedOptimizerWrapper DeepSpeedPlugin DeepSpeedSchedulerWrapper
        DeepSpeedSequenceParallelConfig DummyOptim DummyScheduler GatheredParameters HfDeepSpeedConfig
        compile_regions_deepspeed deepspeed_required get_active_deepspeed_plugin map_pytorch_optim_to_deepspeed
        prepare_deepspeed_cmd_env DEEPSPEED_MULTINODE_LAUNCHERS""",
    ),
    Refusal(
        "Megatron-LM",
        "notebook-accel does not support Megatron-LM. Split layers with torch_tp_plugin=TorchTensorParallelPlugin(...)"
        ", or shard the model with fsdp_plugin=FullyShardedDataParallelPlugin().",
        """AbstractTrainStep BertTrainStep GPTTrainStep MODEL_CONFIGS_TO_MEGATRON_PARSERS MegatronEngine
        MegatronLMDummyDataLoader MegatronLMDummyScheduler MegatronLMOptimizerWrapper MegatronLMPlugin
        MegatronLMSchedulerWrapper T5TrainStep add_model_config_to_megatron_parser
        avg_losses_across_data_parallel_group finish_mpu_init gather_across_data_parallel_groups
        megatron_lm_initialize megatron_lm_prepare_data_loader megatron_lm_prepare_model_optimizer_scheduler
        megatron_lm_prepare_optimizer megatron_lm_prepare_scheduler model_provider_func parse_bert_config
        parse_glm4_moe_config parse_gpt2_config parse_llama_config parse_t5_config prepare_model_optimizer_scheduler""",
    ),
    Refusal(
        "models on several devices of one process",
        "Each rank has one device. To train a model that does not fit on it, shard the model: "
        "Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin(cpu_offload=True)). For inference, load the model with "
        "transformers' device_map='auto', which uses Accelerate.",
        """OffloadedWeightsLoader PrefixedDataset align_module_device check_device_map check_device_same
        check_tied_parameters_in_config check_tied_parameters_on_same_device clean_device_map
        compute_module_total_buffer_size cpu_offload cpu_offload_with_hook disk_offload dispatch_model
        extract_submodules_state_dict fallback_allocate get_balanced_memory get_max_layer_size get_max_memory
        get_module_leaves get_module_size_with_ties get_non_persistent_buffers get_state_dict_from_offload
        get_state_dict_offloaded_model infer_auto_device_map load_checkpoint_and_dispatch load_offloaded_weight
        load_offloaded_weights offload_state_dict offload_weight save_offload_index""",
    ),
    Refusal(
        "the hooks that move a model's weights before its forward pass",
        "Prepared models have no such hooks. For your own, use torch's register_forward_pre_hook and "
        "register_forward_hook. Use FullyShardedDataParallelPlugin(cpu_offload=True) to keep weights on the CPU while "
        "they are not in use.",
        """AlignDevicesHook CpuOffload LayerwiseCastingHook ModelHook SequentialHook UserCpuOffloadHook
        add_hook_to_module attach_align_device_hook attach_align_device_hook_on_blocks attach_execution_device_hook
        attach_layerwise_casting_hooks remove_hook_from_module remove_hook_from_submodules""",
    ),
    Refusal(
        "pipelines",
        "notebook-accel does not split models into pipelines. Use torch.distributed.pipelining on the ranks of a "
        "launch, or shard the model with FullyShardedDataParallelPlugin().",
        """build_pipeline find_pippy_batch_size generate_device_map pippy_forward prepare_pippy""",
    ),
    Refusal(
        "quantization with bitsandbytes",
        "notebook-accel does not quantize models. Load a quantized model, for example with transformers' "
        "BitsAndBytesConfig, and prepare it like any other model.",
        """BnbQuantizationConfig CustomDtype get_keys_to_not_convert get_parameter_device
        get_quantized_model_device_map has_4bit_bnb_layers is_bitsandbytes_multi_backend_available
        load_and_quantize_model quantize_and_offload_8bit replace_with_bnb_layers""",
    ),
    Refusal(
        "fp8 with libraries other than torchao",
        "mixed_precision='fp8' uses torchao: pass AORecipeKwargs in kwargs_handlers, or nothing.",
        """FP8RecipeKwargs MSAMPRecipeKwargs TERecipeKwargs apply_fp8_autowrap contextual_fp8_autocast
        convert_model convert_model_to_fp8_ao filter_first_and_last_linear_layers filter_linear_layers
        find_first_last_linear_layers has_ao_layers has_transformer_engine_layers setup_fp8_env torchao_required""",
    ),
    Refusal(
        "the internals of parallelism in several dimensions",
        "Pass parallelism_config=ParallelismConfig(...) to the Accelerator. Its torch_device_mesh is the mesh.",
        """BETA_CP_AVAILABLE_PYTORCH_VERSION BETA_SP_AVAILABLE_DEEPSPEED_VERSION BETA_TP_AVAILABLE_PYTORCH_VERSION
        BETA_TP_AVAILABLE_TRANSFORMERS_VERSION get_model_tp_size prepare_extend_env_parallelism_config""",
    ),
    Refusal(
        "the internals of FSDP",
        "prepare shards models and their optimizers; Accelerator.save_state and load_state write and read the "
        "shards, and get_state_dict and save_model return and write the complete weights.",
        """FSDP2_PYTORCH_VERSION FSDP2_STATE_DICT_TYPE FSDP_PYTORCH_VERSION disable_fsdp_ram_efficient_loading
        enable_fsdp_ram_efficient_loading ensure_weights_retied fsdp2_apply_ac fsdp2_canonicalize_names
        fsdp2_load_full_state_dict fsdp2_prepare_auto_wrap_policy fsdp2_prepare_model
        fsdp2_switch_optimizer_parameters get_fsdp2_grad_scaler get_module_class_from_name get_parameters_from_modules
        load_fsdp_model load_fsdp_optimizer save_fsdp_model save_fsdp_optimizer""",
    ),
    Refusal(
        "the internals of checkpoints",
        "Accelerator.save_state and load_state write and read the state of a run; register_for_checkpointing adds your "
        "own objects.",
        "load_accelerator_state load_custom_state load_model save_accelerator_state save_custom_state",
    ),
    Refusal(
        "Accelerate's commands and launchers",
        "Start ranks with notebook_launcher, or with `notebook-accel launch`, which takes the options of `accelerate "
        "launch`; `notebook-accel config` writes the settings.",
        """BaseConfig ClusterConfig PrepareForLaunch SageMakerConfig TORCH_LAUNCH_PARAMS cache_dir default_config_file
        default_json_config_file default_yaml_config_file env_command env_command_parser env_var_path_add
        estimate_command estimate_command_parser get_config_parser launch_command launch_command_parser
        load_config_from_file merge_command merge_command_parser prepare_multi_gpu_env prepare_sagemager_args_inputs
        prepare_simple_launcher_cmd_env prepare_tpu test_command test_command_parser test_launch""",
    ),
    Refusal(
        "trackers of other services",
        "Write your own tracker, a subclass of GeneralTracker with about a dozen lines, and pass it in log_with.",
        "AimTracker ClearMLTracker DVCLiveTracker LOGGER_TYPE_TO_CLASS SwanLabTracker ",
    ),
    Refusal(
        "Amazon SageMaker",
        "SageMaker's own launcher is not supported. You can launch on its machines as on any others.",
        """ComputeEnvironment SAGEMAKER_PARALLEL_EC2_INSTANCES SAGEMAKER_PYTHON_VERSION SAGEMAKER_PYTORCH_VERSION
        SAGEMAKER_TRANSFORMERS_VERSION SageMakerDistributedType""",
    ),
    Refusal(
        "the older modules of Accelerate",
        "Import find_executable_batch_size from notebook_accel.utils.",
        "memory_utils",
    ),
    Refusal(
        "the installation of torch_xla",
        "Install it with pip install 'notebook-accel[tpu]'.",
        "install_xla",
    ),
    Refusal(
        "the tests of Accelerate",
        "Import it from Accelerate, which you can install alongside this package.",
        """AccelerateTestCase DEFAULT_LAUNCH_COMMAND MockingTestCase RegressionDataset RegressionModel TempDirTestCase
        are_the_same_tensors assert_exception capture_call_output device_count execute_subprocess_async
        get_launch_command get_torch_dist_unique_port memory_allocated_func path_in_accelerate_package
        pytest_xdist_worker_id require_bnb require_comet_ml require_cpu require_cuda require_cuda_or_hpu
        require_cuda_or_xpu require_deepspeed require_fp16 require_fp8 require_huggingface_suite require_mlu
        require_mps require_multi_device require_multi_gpu require_multi_gpu_or_xpu require_multi_xpu require_musa
        require_non_cpu require_non_hpu require_non_torch_xla require_non_xpu require_npu require_peft require_pippy
        require_sdaa require_single_device require_single_gpu require_single_xpu require_tensorboard
        require_torch_min_version require_torchao require_torchvision require_tpu require_transformer_engine
        require_transformer_engine_mxfp8 require_wandb require_xpu run_first torch_device""",
    ),
    Refusal(
        "the internals of Accelerate",
        "It is an internal helper of Accelerate. Copy the part that you need, or use torch's equivalent.",
        """BaseEnum CPUInformation CUDA_DISTRIBUTED_TYPES CannotPadNestedTensorWarning ConvertOutputsToFp32
        DTENSOR_PYTORCH_VERSION DataLoaderAdapter ELASTIC_LOG_LINE_PREFIX_TEMPLATE_PYTORCH_VERSION EnumWithContains
        MITA_PROFILING_AVAILABLE_PYTORCH_VERSION SUPPORTED_PYTORCH_LAYERS_FOR_UPCASTING SharedDict TENSOR_INT_TO_DTYPE
        TENSOR_TYPE_TO_INT TORCH_DISTRIBUTED_OPERATION_TYPES TORCH_DYNAMO_MODES TORCH_SAFE_GLOBALS
        ThreadLocalSharedDict USE_TORCH_XLA XPU_PROFILING_AVAILABLE_PYTORCH_VERSION chained_operation
        check_cuda_p2p_ib_support check_os_kernel compile_regions_fsdp2 convert_dict_to_env_variables
        do_nothing gather_tensor_shape get_cpu_distributed_information get_current_device_type get_driver_version
        get_free_port get_gpu_info get_grad_scaler get_mixed_precision_context_manager get_shape has_repeated_blocks
        is_repeated_blocks is_torch_xpu_tensor move_to_device override_numa_affinity pad_input_tensors
        patch_optimizer_step purge_accelerate_environment set_numa_affinity verify_operation""",
    ),
)

_WHOLE_MODULES = {"commands": "Accelerate's commands and launchers", "test_utils": "the tests of Accelerate"}
"""Modules of which every name is refused, also those that no row lists, with the subject of the row."""


@functools.cache
def _by_name() -> dict[str, Refusal]:
    return {name: row for row in TABLE for name in row.names.split()}


def names() -> set[str]:
    """All refused names."""
    return {*_by_name()}


def message(name: str, module: str = "") -> str | None:
    """What to say about a name of Accelerate that is not here; `None` if Accelerate has no such name either.

    Args:
        name: The name.
        module: The module that it is imported from, without the package, such as `commands.launch`.
    """
    subject = _WHOLE_MODULES.get(module.partition(".")[0])
    row = _by_name().get(name) or next((each for each in TABLE if each.subject == subject), None)
    return None if row is None else f"notebook_accel has no {name}, which belongs to {row.subject}. {row.advice}"
