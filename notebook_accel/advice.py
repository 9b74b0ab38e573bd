"""What this package does not have, and what to write instead: names, arguments, options, and keys of others.

One table: its rows say what was written, where, and what to write instead. Every place where a user may write such a
name looks it up here. What the table does not list may be known elsewhere in the package: as a setting that another
interface has (`config/keys.py`), or as an option of an `Accelerator` (`train/options/option_class.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, ParamSpec, TypeVar

from notebook_accel.errors import ConfigurationError, UnknownArgumentError, UnsupportedNameError, did_you_mean

P = ParamSpec("P")
R = TypeVar("R")
LookUp = Callable[[str, Mapping[str, Any]], str]
"""What to write instead of a keyword, given all arguments of the call by name; empty if nothing is known about it."""


class Row(NamedTuple):
    """What to write instead of some names, in one place where a user writes them."""

    where: str
    """The place: an import, a use of what was imported, a function, a class, a setting, or an interface."""
    written: str
    """The names, separated by spaces. A name that ends in `*` stands for all that begin with what is before it."""
    instead: str
    """What to write instead, and perhaps why: a clause for the end of a message, or sentences.

    `{name}` and `{value}` stand for the keyword of a call and its value.
    """
    subject: str = ""
    """What the names belong to, as the end of "it belongs to …"; only of imports, and of uses."""

    @property
    def names(self) -> list[str]:
        """The names that the row lists one by one."""
        return [name for name in self.written.split() if not name.endswith("*")]


_SHARDING = "models are sharded with torch's FSDP2: use --use_fsdp and its --fsdp_… options"
_TPU = "this command does not support TPUs: use notebook_launcher in a notebook, or torch_xla's own launcher"
_NO_SEQUENCES = "sequence parallelism needs DeepSpeed; parallelism_config_cp_size also shares sequences among ranks"
_MACHINES = "run notebook-accel launch on each machine, with its num_machines, machine_rank, and main_process_ip"
_LEAVE_OUT = "leave it out, because it is the Accelerator's"

TABLE = (
    # Names of Accelerate that can be imported, and raise an error when they are used.
    Row("use", """DeepSpeedEngineWrapper DeepSpeedOptimizerWrapper DeepSpeedSchedulerWrapper
        DeepSpeedSequenceParallelConfig DummyOptim DummyScheduler GatheredParameters HfDeepSpeedConfig
        compile_regions_deepspeed deepspeed_required get_active_deepspeed_plugin map_pytorch_optim_to_deepspeed
        prepare_deepspeed_cmd_env""",
        "DeepSpeed's ZeRO runs as FSDP2 here: pass deepspeed_plugin=DeepSpeedPlugin(zero_stage=3), or "
        "fsdp_plugin=FullyShardedDataParallelPlugin(), to the Accelerator, and torch's own optimizer and scheduler, "
        "such as torch.optim.AdamW, to prepare.", "DeepSpeed"),
    Row("use", """AbstractTrainStep BertTrainStep GPTTrainStep MegatronEngine
        MegatronLMDummyDataLoader MegatronLMDummyScheduler MegatronLMOptimizerWrapper MegatronLMPlugin
        MegatronLMSchedulerWrapper T5TrainStep avg_losses_across_data_parallel_group finish_mpu_init
        gather_across_data_parallel_groups megatron_lm_initialize
        megatron_lm_prepare_data_loader megatron_lm_prepare_model_optimizer_scheduler megatron_lm_prepare_optimizer
        megatron_lm_prepare_scheduler model_provider_func prepare_model_optimizer_scheduler""",
        "notebook-accel does not support Megatron-LM. Split layers with "
        "torch_tp_plugin=TorchTensorParallelPlugin(...), or shard the model with "
        "fsdp_plugin=FullyShardedDataParallelPlugin().", "Megatron-LM"),
    Row("use", "build_pipeline find_pippy_batch_size generate_device_map pippy_forward prepare_pippy",
        "notebook-accel does not split models into pipelines. Use torch.distributed.pipelining on the ranks of a "
        "launch, or shard the model with FullyShardedDataParallelPlugin().", "pipelines"),
    Row("use", """FP8RecipeKwargs MSAMPRecipeKwargs TERecipeKwargs apply_fp8_autowrap contextual_fp8_autocast
        convert_model has_transformer_engine_layers setup_fp8_env""",
        "mixed_precision='fp8' uses torchao: pass AORecipeKwargs in kwargs_handlers, or nothing.",
        "fp8 with libraries other than torchao"),
    Row("use", "prepare_extend_env_parallelism_config",
        "Pass parallelism_config=ParallelismConfig(...) to the Accelerator. Its torch_device_mesh is the mesh.",
        "the internals of parallelism in several dimensions"),
    Row("use", "fsdp2_apply_ac fsdp2_load_full_state_dict fsdp2_prepare_auto_wrap_policy fsdp2_prepare_model",
        "prepare shards models and their optimizers; Accelerator.save_state and load_state write and read the shards, "
        "and get_state_dict and save_model return and write the complete weights.", "the internals of FSDP"),
    Row("use", """BaseConfig ClusterConfig PrepareForLaunch SageMakerConfig env_command env_command_parser
        estimate_command estimate_command_parser get_config_parser launch_command launch_command_parser
        load_config_from_file merge_command merge_command_parser prepare_multi_gpu_env prepare_sagemager_args_inputs
        prepare_simple_launcher_cmd_env prepare_tpu test_command test_command_parser test_launch commands.*""",
        "Start ranks with notebook_launcher, or with `notebook-accel launch`, which takes the options of `accelerate "
        "launch`; `notebook-accel config` writes the settings.", "Accelerate's commands and launchers"),
    Row("import", "LOGGER_TYPE_TO_CLASS", "get_available_trackers() returns the trackers that can be chosen by name.",
        "the internals of trackers"),
    Row("use", "AccelerateTestCase are_the_same_tensors",
        "Import it from Accelerate, whose state it reads, in tests of code that uses Accelerate.",
        "the tests of Accelerate"),
    Row("use", """DataLoaderAdapter chained_operation gather_tensor_shape get_mixed_precision_context_manager
        verify_operation""",
        "It is an internal helper of Accelerate, and uses Accelerate's own state. Copy the part that you need, or use "
        "torch's equivalent.",
        "the internals of Accelerate"),
    # Names of Accelerate that can't be imported.
    Row("import", "memory_utils", "Import find_executable_batch_size from notebook_accel.utils.",
        "the older modules of Accelerate"),
    Row("import", "test_utils.*",
        "Import it from Accelerate, which you can install alongside this package.", "the tests of Accelerate"),
    Row("FP8BackendType", "MSAMP TE", "mixed_precision='fp8' uses torchao: compare with FP8BackendType.AO."),
    Row("RNGType", "HPU MLU MUSA NEURON NPU SDAA XLA XPU",
        "The random states of the CPU and of GPUs are synced. Leave it out, and call set_seed, which seeds the device "
        "of every rank."),
    Row("DynamoBackend", """AOT_TORCHXLA_TRACE_ONCE AOT_TS_NVFUSER FX2TRT HPU_BACKEND NEURON NVPRIMS_NVFUSER OFI ONNXRT
        TENSORRT TORCHXLA_TRACE_ONCE TVM""",
        "Pass torch's own name of the compiler as a string, such as dynamo_backend='tvm'; the package that adds it to "
        "torch has to be installed. torch.compiler.list_backends() returns the names."),
    # Arguments of Accelerate, of its older versions, and of torchrun.
    Row("notebook_launcher", "cpu use_cpu", "pass device='cpu'"),
    Row("notebook_launcher", "fp16 use_fp16", "pass mixed_precision='fp16'"),
    Row("notebook_launcher", "bf16 use_bf16", "pass mixed_precision='bf16'"),
    Row("notebook_launcher", "nprocs nproc_per_node num_gpus world_size", "pass num_processes"),
    Row("notebook_launcher", "nnodes", "pass num_nodes"),
    Row("notebook_launcher", "master_port", "pass use_port"),
    Row("notebook_launcher", "start_method",
        "leave it out, because ranks are forked from a process that has not used a device"),
    Row("notebook_launcher", """dataloader_config dynamo_plugin fsdp_plugin gradient_accumulation_plugin
        kwargs_handlers log_with parallelism_config project_config project_dir torch_tp_plugin""",
        "pass it to the Accelerator that the function creates"),
    Row("Accelerator", "deepspeed_plugins",
        "an Accelerator trains all its models in the same way: pass one plugin, as deepspeed_plugin"),
    Row("AcceleratorState", "deepspeed_plugin", "pass it to the Accelerator"),
    Row("Accelerator", "megatron_lm_plugin",
        "choose from DDP (the default on several ranks), FSDP2 (fsdp_plugin), tensor parallel (torch_tp_plugin) and "
        "several dimensions (parallelism_config)"),
    Row("Accelerator", "fp16", "pass mixed_precision='fp16'"),
    Row("Accelerator", "bf16", "pass mixed_precision='bf16'"),
    Row("Accelerator", "device", "the launch chooses it. Pass device= to notebook_launcher, or cpu=True here"),
    Row("Accelerator", "ipex_plugin", "leave it out, because torch itself has the features of the extension"),
    Row("options of an Accelerator", """cpu device_placement dynamo_backend gradient_accumulation_steps kwargs_handlers
        log_with mixed_precision rng_types step_scheduler_with_optimizer""", "pass it to the Accelerator"),
    Row("AutocastKwargs", "dtype", "pass mixed_precision to the Accelerator"),
    Row("AutocastKwargs", "device_type", _LEAVE_OUT),
    Row("GradScalerKwargs", "device", _LEAVE_OUT),
    Row("DistributedDataParallelKwargs", "device_ids output_device process_group device_mesh",
        "leave it out, because prepare sets it"),
    Row("InitProcessGroupKwargs", "rank world_size store", "leave it out, because the launch sets it"),
    Row("ProfileKwargs", "schedule", "pass schedule_option"),
    Row("GradientAccumulationPlugin", "gradient_accumulation_steps steps", "pass num_steps"),
    Row("DataLoaderConfiguration", """batch_size collate_fn drop_last num_workers persistent_workers pin_memory
        prefetch_factor sampler shuffle timeout""", "pass it to the DataLoader"),
    Row("FullyShardedDataParallelPlugin", "mixed_precision mp_policy", "pass mixed_precision_policy"),
    Row("FullyShardedDataParallelPlugin", "offload_params offload_policy fsdp_offload_params", "pass cpu_offload"),
    Row("FullyShardedDataParallelPlugin", "fsdp_transformer_layer_cls_to_wrap", "pass transformer_cls_names_to_wrap"),
    Row("ParallelismConfig", "dp_size ddp_size", "pass dp_replicate_size"),
    Row("ParallelismConfig", "fsdp_size", "pass dp_shard_size"),
    Row("ParallelismConfig", "pp_size ep_size",
        "there is no pipeline or expert parallelism: use dp_shard_size, tp_size, or cp_size"),
    Row("prepared loader", "skip_batches", "prepare a DataLoader, and call skip_first_batches(loader, {value})"),
    Row("prepared loader", """batch_sampler batch_size collate_fn dataset drop_last generator in_order
        multiprocessing_context num_workers persistent_workers pin_memory pin_memory_device prefetch_factor sampler
        shuffle timeout worker_init_fn""",
        "it wraps a DataLoader. Create DataLoader(dataset, {name}={value}, ...), and pass it to Accelerator.prepare "
        "or prepare_data_loader"),
    Row("set_module_tensor_to_device", "fp16_statistics tied_params_map",
        "leave it out, and tie weights with retie_parameters"),
    # Options of `accelerate launch` and torchrun, and settings of which the command has a flag for one value.
    Row("notebook-accel launch", "downcast_bf16 no_tpu* tpu tpu_* vm", _TPU),
    Row("notebook-accel launch", "megatron_lm* use_megatron*", _SHARDING),
    Row("notebook-accel launch", "deepspeed_config", "use --use_deepspeed and --deepspeed_config_file"),
    Row("notebook-accel launch", "deepspeed_hostfile deepspeed_inclusion_filter "
        "deepspeed_exclusion_filter", _MACHINES),
    Row("notebook-accel launch", "fp8_*",
        "fp8 uses torchao: use --mixed_precision fp8, and configure it in the script with AORecipeKwargs"),
    Row("notebook-accel launch", "aws_*",
        "this command does not start cloud machines: run it on the machines themselves"),
    Row("notebook-accel launch", "parallelism_config_cp_backend*",
        "torch's context parallelism is the only one: leave it out"),
    Row("notebook-accel launch", "parallelism_config_sp*",
        "sequence parallelism needs DeepSpeed: use --parallelism_config_cp_size"),
    Row("notebook-accel launch", "env", "set the variable before the command: NAME=value notebook-accel launch …"),
    Row("notebook-accel launch", "main_training_function",
        "the script runs as a whole, as with python: call the function in the script"),
    Row("notebook-accel launch", "mpirun_hostfile",
        "MPI is not needed: use --num_machines, --machine_rank and --main_process_ip on each machine"),
    Row("notebook-accel launch", "nproc_per_node", "use --num_processes, the number of ranks on all machines together"),
    Row("notebook-accel launch", "nnodes", "use --num_machines"),
    Row("notebook-accel launch", "master_port", "use --main_process_port"),
    Row("notebook-accel launch", "rdzv_endpoint", "use --main_process_ip and --main_process_port"),
    Row("notebook-accel launch", "standalone", "leave it out: ranks on a single machine use a free port anyway"),
    Row("notebook-accel launch", "distributed_type strategy", "use --use_fsdp to shard models"),
    Row("notebook-accel launch", "device use_cpu", "use --cpu for the CPU"),
    Row("%accelerate", "use_fsdp", "did you mean --strategy fsdp?"),
    Row("%accelerate", "cpu use_cpu", "did you mean --device cpu?"),
    # Keys of DeepSpeed's configuration, and of its section in Accelerate's file.
    Row("DeepSpeed", "optimizer.*", "create torch's own optimizer in the code, and pass it to prepare"),
    Row("DeepSpeed", "scheduler.*", "create torch's own scheduler in the code, and pass it to prepare"),
    Row("DeepSpeed", "amp.*", "set bf16.enabled or fp16.enabled, or pass mixed_precision"),
    Row("DeepSpeed", "fp16.loss_scale", "write 0 or leave it out: the scale follows overflows"),
    Row("DeepSpeed", "fp16.fp16_master_weights_and_grads bf16.bf16_master_weights_and_grads",
        "optimizers always step in float32"),
    Row("DeepSpeed", "communication_data_type data_types.* zero_optimization.zero_quantized*",
        "pass FullyShardedDataParallelPlugin(mixed_precision_policy=MixedPrecisionPolicy(reduce_dtype=...))"),
    Row("DeepSpeed", "zero_optimization.mics_*", "pass ParallelismConfig(dp_replicate_size=..., dp_shard_size=...)"),
    Row("DeepSpeed", "tensor_parallel.*", "pass torch_tp_plugin=TorchTensorParallelPlugin(...)"),
    Row("DeepSpeed", "sequence_parallel_size", _NO_SEQUENCES),
    Row("DeepSpeed", "pipeline.*", "use torch.distributed.pipelining on the ranks of a launch"),
    Row("DeepSpeed", "deepspeed_hostfile deepspeed_inclusion_filter deepspeed_exclusion_filter", _MACHINES),
    # Keys of Accelerate's configuration file, with values that have an effect there.
    Row("configuration file", "compute_environment",
        "SageMaker's own launcher starts its jobs; use LOCAL_MACHINE here"),
    Row("configuration file", "main_training_function",
        "the function is what notebook_launcher() is given, the script what it runs"),
    Row("configuration file", "downcast_bf16", "it is for TPUs; mixed_precision: bf16 is for GPUs and CPUs"),
    Row("configuration file", "megatron_lm_config", "use distributed_type: FSDP, or Accelerator(torch_tp_plugin=...)"),
    Row("configuration file", "parallelism_config_cp_backend", "write torch, or leave it out"),
    Row("configuration file", "parallelism_config_sp*", _NO_SEQUENCES),
    Row("configuration file", "mpirun_config",
        "ranks are started directly; give num_machines and main_process_ip for several machines"),
    Row("configuration file", "ipex_config", "torch itself includes the features of the extension"),
    Row("configuration file", "fp8_config",
        "mixed_precision: fp8 uses torchao; pass it kwargs_handlers=[AORecipeKwargs(...)] for more"),
    Row("configuration file", "command_file commands", "pass the command itself"),
    Row("configuration file", "tpu_*",
        "TPU pods are started with gcloud; each of their machines runs the notebook or the script"),
    Row("configuration file", "fsdp_ignored_modules",
        "use Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin(ignored_modules=...))"),
    Row("distributed_type", "MEGATRON_LM", "use FSDP, or Accelerator(torch_tp_plugin=...) for tensor parallel layers"),
    Row("distributed_type", "TP", "use MULTI_GPU, and Accelerator(torch_tp_plugin=...)"),
    Row("fsdp_state_dict_type", "LOCAL_STATE_DICT",
        "use SHARDED_STATE_DICT, where each rank writes its shards too, and any number of ranks can read them"),
)  # fmt: skip


@functools.cache
def _by_place() -> dict[tuple[str, str], Row]:
    return {(row.where, name): row for row in TABLE for name in row.written.split()}


def names(where: str) -> set[str]:
    """The names that rows list for a place."""
    return {name for row in TABLE if row.where == where for name in row.names}


def row_of(written: str, where: str) -> Row | None:
    """The row of a name in a place; `None` if there is none."""
    rows = _by_place()
    beginnings = (f"{written[:length]}*" for length in range(len(written), 0, -1))
    return next((rows[where, name] for name in (written, *beginnings) if (where, name) in rows), None)


def instead_of(written: str, where: str) -> str:
    """What to write instead of a name in a place; empty if the table does not have it."""
    row = row_of(written, where)
    return "" if row is None else row.instead


def of_import(name: str, module: str = "") -> str:
    """The message about a name of Accelerate that is refused here; empty if Accelerate has no such name either.

    Args:
        name: The name.
        module: The module that it is imported from, without the package, such as `commands.launch`.
    """
    return next((_refusal(name, row) for row in _rows_of_import(name, module, ("import", "use"))), "")


def stand_in(name: str, module: str = "") -> type[Any] | None:
    """What is imported under a name of Accelerate's that is refused when it is used; `None` for all other names.

    It is a class, so that `isinstance` with it is `False`. To call it is an error with advice, whether it stands for a
    class or for a function.

    Args:
        name: The name.
        module: The module that it is imported from, without the package, such as `commands.launch`.
    """
    return next((_stand_in(name, _refusal(name, row)) for row in _rows_of_import(name, module, ("use",))), None)


def _rows_of_import(name: str, module: str, places: Iterable[str]) -> Iterator[Row]:
    for place in places:
        row = row_of(name, place) or row_of(f"{module}.{name}", place)
        if row is not None:
            yield row


def _refusal(name: str, row: Row) -> str:
    return f"notebook_accel has no {name}, which belongs to {row.subject}. {row.instead}"


class StandIn(type):
    """The class of the classes that stand for what is refused when it is used."""

    refusal: str

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        raise UnsupportedNameError(cls.refusal, name=cls.__name__)

    def __getattr__(cls, name: str) -> Any:
        raise AttributeError(f"{cls.__name__}.{name}: {cls.refusal}")


@functools.cache
def _stand_in(name: str, refusal: str) -> type[Any]:
    # The package finds the class under its name, so it can be sent to ranks.
    return StandIn(name, (), {"__module__": __package__, "__doc__": refusal, "refusal": refusal})


def refuse(where: str, **arguments: Any) -> None:
    """Raises for arguments that a function or class only takes because Accelerate's does.

    Args:
        where: The function or class.
        arguments: Their values; `None` for those that were not given.
    """
    for name, value in arguments.items():
        if value is not None:
            raise ConfigurationError(f"{name} is not supported: {instead_of(name, where)}")


def listed(where: str) -> LookUp:
    """The look-up of keywords in the table, for `explained`."""

    def look_up(keyword: str, given: Mapping[str, Any]) -> str:
        value = f"{given[keyword]!r:.60}"
        return instead_of(keyword, where).replace("{name}", keyword).replace("{value}", value)

    return look_up


def explained(
    *look_ups: LookUp, also: Callable[[Mapping[str, Any]], Iterable[str]] = lambda _: ()
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A decorator, with which a call that has an unknown keyword ends in an error that says what to write instead.

    Where no look-up has an answer, the error suggests the parameter with the most similar name. The error of a
    constructor names the class of the object.

    Args:
        look_ups: The first one that knows the keyword answers.
        also: Returns the keywords that the function takes as `**`, given all arguments of the call by name.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        code = function.__code__
        positional = code.co_varnames[: code.co_argcount]
        known = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]

        @functools.wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            for keyword in kwargs:
                if keyword not in known:
                    given = {**dict(zip(positional, args, strict=False)), **kwargs}
                    if keyword in also(given):
                        continue
                    title = type(args[0]).__name__ if function.__name__ == "__init__" else function.__name__
                    instead = next((found for each in look_ups if (found := each(keyword, given))), "")
                    hint = (
                        f": {instead}" if instead else did_you_mean(keyword, [each for each in known if each != "self"])
                    )
                    raise UnknownArgumentError(f"{title}() has no argument {keyword!r}{hint}")
            return function(*args, **kwargs)

        return checked

    return decorate
