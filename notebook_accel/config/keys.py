"""The keys of the configuration file, which are those of Hugging Face Accelerate's.

A key in `KEYS` has an effect. A key in `NEUTRAL` has none: it is accepted with the values that Accelerate writes by
default, and any other value is an error that names the alternative.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from notebook_accel.config import checks
from notebook_accel.config.checks import Check
from notebook_accel.config.settings import DEVICES, PRECISIONS
from notebook_accel.errors import ConfigurationError, did_you_mean

SCHEMA_KEY = "schema_version"
SCHEMA = 1
_UNSET_VALUES: tuple[Any, ...] = (None, False, "", "no", "NO", [], {})


@dataclass(frozen=True)
class Key:
    """A key that has an effect."""

    check: Check
    read: Callable[[str], Any] = checks.read_text
    """Converts it from text, as in `config set key=value`."""
    summary: str = ""
    """The help text of its option of `notebook-accel config`; empty for a key that only the file has."""


def _unset_when(check: Check, *unset: Any) -> Check:
    """A check that returns `None`, for not set, for any of these values."""
    return lambda name, value: None if _is_any(value, unset) else check(name, value)


def _is_any(value: Any, of: Iterable[Any]) -> bool:
    """Whether the value is one of these, with 0 and `False` told apart."""
    return any(value == each and type(value) is type(each) for each in of)


def _precision(name: str, value: Any) -> str:
    """A precision; YAML reads an unquoted `no` as false."""
    return str(checks.choice(*PRECISIONS)(name, "no" if value in (False, None) else checks.read_lower(str(value))))


def _gpu_ids(name: str, value: Any) -> str | None:
    """`all`, `0,2`, or one number."""
    text = str(value).strip()
    return None if value is None or text == "all" else ",".join(map(str, checks.gpus(name, checks.read_gpus(text))))


DISTRIBUTED: dict[str, dict[str, Any]] = {
    "NO": {"num_processes": 1, "strategy": "ddp"},
    "MULTI_CPU": {"device": "cpu", "strategy": "ddp"},
    "MULTI_GPU": {"device": "cuda", "strategy": "ddp"},
    "FSDP": {"strategy": "fsdp"},
    "XLA": {"device": "tpu", "strategy": "ddp"},
    "SPMD": {"strategy": "spmd"},
}
"""What each `distributed_type` sets, by field of `LaunchConfig`."""
_DISTRIBUTED_INSTEAD = {
    "DEEPSPEED": "FSDP shards as its stage 3 does",
    "MEGATRON_LM": "use FSDP, or Accelerator(torch_tp_plugin=...) for tensor parallel layers",
    "TP": "use MULTI_GPU, and Accelerator(torch_tp_plugin=...)",
}


def _distributed_type(name: str, value: Any) -> str:
    kind = "NO" if value is False else str(value).upper()
    if kind in DISTRIBUTED:
        return kind
    instead = _DISTRIBUTED_INSTEAD.get(kind, f"there are {', '.join(DISTRIBUTED)}")
    raise ConfigurationError(f"{name}: {value} is not available: {instead}")


def _compiler(name: str, value: Any) -> str:
    return "no" if value in (False, None) else str(value).lower()


def _reshard(name: str, value: Any) -> Any:
    """True or false, or the name of an FSDP1 sharding strategy."""
    return value if isinstance(value, bool) else _sharding(name, value)


def _sharding(name: str, value: Any) -> str:
    """A sharding strategy, by name or by Accelerate's number for it."""
    kind = _SHARDING[int(value) - 1] if str(value) in map(str, range(1, len(_SHARDING) + 1)) else str(value).upper()
    if kind == "NO_SHARD":
        raise ConfigurationError(f"{name}: {value} keeps everything on every rank: use distributed_type: MULTI_GPU")
    return str(checks.choice(*_SHARDING)(name, kind))


_SHARDING = ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2")


def _upper(*choices: str) -> Check:
    return lambda name, value: checks.choice(*choices)(name, str(value).upper())


def _classes(name: str, value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _state_dict(name: str, value: Any) -> str:
    kind = str(value).upper()
    if kind == "LOCAL_STATE_DICT":
        raise ConfigurationError(
            f"{name}: {value} is not available: use SHARDED_STATE_DICT, where each rank writes its shards too, and any "
            "number of ranks can read them"
        )
    return str(checks.choice(*STATE_DICTS)(name, kind))


def _fsdp_version(name: str, value: Any) -> int | None:
    """`None` for version 2, which is the only one, and 1 for a file that was written for FSDP1."""
    if str(value) not in ("None", "1", "2"):
        raise ConfigurationError(f"{name}: {value!r:.80} is unknown; write 2")
    return 1 if str(value) == "1" else None


def _ignored(name: str, value: Any) -> None:
    """Accepts any value: the key changes how weights are loaded in Accelerate, and not the result."""


COMPILERS = ("no", "eager", "aot_eager", "inductor", "cudagraphs")
"""Backends of torch.compile that every installation has; a file may name others."""
COMPILER_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
WRAPPINGS = ("TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP")
STATE_DICTS = ("SHARDED_STATE_DICT", "FULL_STATE_DICT")
RENDEZVOUS_BACKENDS = ("static", "c10d")
"""How nodes find each other."""
KEYS: dict[str, Key] = {
    "num_processes": Key(
        _unset_when(checks.integer(1), None, -1), checks.read_number, summary="Ranks, on all machines together."
    ),
    "mixed_precision": Key(
        _precision, summary="The precision of every Accelerator on the ranks: no, fp16, bf16 or fp8."
    ),
    "distributed_type": Key(_distributed_type, summary="NO, MULTI_CPU, MULTI_GPU, FSDP, XLA or SPMD."),
    "use_cpu": Key(checks.flag, checks.read_flag, summary="Whether to use the CPU even if there are accelerators."),
    "gpu_ids": Key(_gpu_ids, summary="Which GPUs, such as 0,2; or all."),
    "device": Key(_unset_when(checks.device(*DEVICES), None)),
    "gradient_accumulation_steps": Key(
        checks.integer(1), checks.read_number, summary="The number of batches over which gradients accumulate."
    ),
    "num_machines": Key(checks.integer(1), checks.read_number, summary="The number of machines."),
    "cluster": Key(
        _unset_when(checks.cluster, None, ""),
        summary="The cluster for a notebook's launches: auto, ray://HOST:10001, HOST:6379 or slurm.",
    ),
    "insecure": Key(_unset_when(checks.flag, None, False), checks.read_flag),
    "machine_rank": Key(checks.integer(0), checks.read_number, summary="The rank of this machine, from 0."),
    "main_process_ip": Key(_unset_when(checks.address, None, ""), summary="The address of the machine with rank 0."),
    "main_process_port": Key(_unset_when(checks.port, None, ""), summary="The port of the rendezvous on that machine."),
    "rdzv_backend": Key(checks.choice(*RENDEZVOUS_BACKENDS)),
    "max_restarts": Key(checks.integer(0), checks.read_number),
    "enable_cpu_affinity": Key(_unset_when(checks.flag, None, False), checks.read_flag),
    "debug": Key(checks.flag, checks.read_flag, summary="Whether ranks compare shapes before each collective."),
    "env": Key(_unset_when(checks.environment, None)),
    "dynamo_backend": Key(_compiler, summary="The backend that compiles models, such as inductor; or no."),
    "dynamo_mode": Key(_unset_when(checks.choice(*COMPILER_MODES), None, "default")),
    "dynamo_use_fullgraph": Key(_unset_when(checks.flag, None, False), checks.read_flag),
    "dynamo_use_dynamic": Key(_unset_when(checks.flag, None, False), checks.read_flag),
    "fsdp_version": Key(_fsdp_version, checks.read_number),
    "fsdp_reshard_after_forward": Key(_reshard, checks.read_flag),
    "fsdp_sharding_strategy": Key(_sharding),
    "fsdp_offload_params": Key(checks.flag, checks.read_flag),
    "fsdp_auto_wrap_policy": Key(_upper(*WRAPPINGS)),
    "fsdp_transformer_layer_cls_to_wrap": Key(_classes),
    "fsdp_min_num_params": Key(checks.integer(0), checks.read_number),
    "fsdp_state_dict_type": Key(_state_dict),
    "fsdp_activation_checkpointing": Key(checks.flag, checks.read_flag),
    "fsdp_cpu_ram_efficient_loading": Key(_ignored),
    "fsdp_backward_prefetch": Key(_unset_when(_upper("BACKWARD_POST"), *_UNSET_VALUES, "BACKWARD_PRE", "NO_PREFETCH")),
    "fsdp_forward_prefetch": Key(_unset_when(checks.flag, *_UNSET_VALUES), checks.read_flag),
    "fsdp_use_orig_params": Key(_unset_when(checks.flag, None, True), checks.read_flag),
    "fsdp_sync_module_states": Key(_unset_when(checks.flag, None, True), checks.read_flag),
}
"""By name. Those that begin with `fsdp_` and `dynamo_` stand in `fsdp_config` and `dynamo_config` in the file."""
FSDP1_KEYS = (
    "fsdp_version", "fsdp_backward_prefetch", "fsdp_forward_prefetch", "fsdp_use_orig_params", "fsdp_sync_module_states"
)  # fmt: skip
"""Keys that select what only FSDP1 has. Accelerate writes them into its files by default."""
NEUTRAL: dict[str, tuple[tuple[Any, ...], str]] = {
    "compute_environment": (
        (None, "LOCAL_MACHINE"),
        "SageMaker's own launcher starts its jobs; use LOCAL_MACHINE here",
    ),
    "same_network": ((None, True, False), ""),
    "main_training_function": (
        (None, "main"),
        "the function is what notebook_launcher() is given, the script what it runs",
    ),
    "downcast_bf16": (_UNSET_VALUES, "it is for TPUs; mixed_precision: bf16 is for GPUs and CPUs"),
    "deepspeed_config": (_UNSET_VALUES, "distributed_type: FSDP shards as its stage 3 does"),
    "megatron_lm_config": (_UNSET_VALUES, "use distributed_type: FSDP, or Accelerator(torch_tp_plugin=...)"),
    "parallelism_config": (_UNSET_VALUES, "use distributed_type: FSDP, or Accelerator(torch_tp_plugin=...)"),
    "mpirun_config": (
        _UNSET_VALUES,
        "ranks are started directly; give num_machines and main_process_ip for several machines",
    ),
    "ipex_config": (_UNSET_VALUES, "torch itself includes the features of the extension"),
    "fp8_config": (
        _UNSET_VALUES,
        "mixed_precision: fp8 uses torchao; pass it kwargs_handlers=[AORecipeKwargs(...)] for more",
    ),
    "command_file": (_UNSET_VALUES, "pass the command itself"),
    "commands": (_UNSET_VALUES, "pass the command itself"),
    **dict.fromkeys(
        ["tpu_name", "tpu_zone", "tpu_use_cluster", "tpu_use_sudo", "tpu_vm", "tpu_env"],
        (_UNSET_VALUES, "TPU pods are started with gcloud; each of their machines runs the notebook or the script"),
    ),
    "dynamo_use_regional_compilation": (_UNSET_VALUES, "compile the layers yourself before prepare()"),
    "fsdp_activation_checkpointing_offload": (_UNSET_VALUES, "use fsdp_offload_params, or leave it out"),
    "fsdp_ignored_modules": (
        _UNSET_VALUES,
        "use Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin(ignored_modules=...))",
    ),
}
"""Keys without an effect: the values that are accepted, and what to do in place of any other."""
GROUPS = ("fsdp_config", "dynamo_config")


def has_no_effect(key: str, text: str, called: str) -> bool:
    """Whether a text is a value of a key that has no effect, such as those that Accelerate writes by default.

    Raises:
        ConfigurationError: The value is not available here.
    """
    read = KEYS[key].read if key in KEYS else checks.read_flag
    return check(key, read(text), called) is None


def refuse_fsdp1_keys(keys: Mapping[str, Any]) -> None:
    """Rejects FSDP1 keys that a user sets now; in a file that was written for FSDP1 they only cause a notice.

    Raises:
        ConfigurationError: One of the keys is set.
    """
    for key in FSDP1_KEYS:
        if keys.get(key) is not None:
            raise ConfigurationError(f"{key}: {keys[key]} would have no effect: models are sharded by FSDP2, which has "
                                     "no such choice. Leave it out.")  # fmt: skip


def check(key: str, value: Any, called: str) -> Any:
    """Checks the value of one key and returns it; `None` if it has no effect.

    Raises:
        ConfigurationError: There is no such key, or its value is not valid.
    """
    if key in KEYS:
        return KEYS[key].check(called, value)
    if key not in NEUTRAL:
        raise ConfigurationError(f"{called} is not a setting{did_you_mean(key, [*KEYS, *NEUTRAL, *GROUPS])}")
    allowed, instead = NEUTRAL[key]
    if not _is_any(value, allowed):
        raise ConfigurationError(f"{called}: {value!r:.80} is not available here: {instead}")
    return None
