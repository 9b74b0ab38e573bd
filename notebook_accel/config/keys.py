"""The keys of the configuration file, which are those of Hugging Face Accelerate's, and settings by their other names.

A key in `KEYS` has an effect. A key in `NEUTRAL` has none: it is accepted with the values that Accelerate writes by
default, and any other value is an error that names the alternative.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from notebook_accel.advice import instead_of
from notebook_accel.config import deepspeed, kinds
from notebook_accel.config.kinds import Kind
from notebook_accel.config.settings import SETTINGS, LaunchConfig, Setting, is_any
from notebook_accel.errors import ConfigurationError, did_you_mean

SCHEMA_KEY = "schema_version"
SCHEMA = 1
_UNSET_VALUES: tuple[Any, ...] = (None, False, "", "no", "NO", [], {})


def _gpu_ids(name: str, value: Any) -> str | None:
    """`all`, `0,2`, or one number."""
    text = str(value).strip()
    return None if text == "all" else ",".join(map(str, kinds.gpus.parse(name, text)))


DISTRIBUTED: dict[str, dict[str, Any]] = {
    "NO": {"num_processes": 1, "strategy": "ddp"},
    "MULTI_CPU": {"device": "cpu", "strategy": "ddp"},
    "MULTI_GPU": {"device": "cuda", "strategy": "ddp"},
    "FSDP": {"strategy": "fsdp"},
    "XLA": {"device": "tpu", "strategy": "ddp"},
    "SPMD": {"strategy": "spmd"},
    "DEEPSPEED": {},
}
"""What each `distributed_type` sets, by field of `LaunchConfig`. DeepSpeed's is translated to another one."""


def _distributed_type(name: str, value: Any) -> str:
    kind = "NO" if value is False else str(value).upper()
    if kind in DISTRIBUTED:
        return kind
    instead = instead_of(kind, "distributed_type") or f"there are {', '.join(DISTRIBUTED)}"
    raise ConfigurationError(f"{name}: {value} is not available: {instead}")


_SHARDING = ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2")


def _sharding(name: str, value: Any) -> str:
    """A sharding strategy, by name or by Accelerate's number for it."""
    kind = _SHARDING[int(value) - 1] if str(value) in map(str, range(1, len(_SHARDING) + 1)) else str(value).upper()
    if kind == "NO_SHARD":
        raise ConfigurationError(f"{name}: {value} keeps everything on every rank: use distributed_type: MULTI_GPU")
    return str(kinds.choice(*_SHARDING).check(name, kind))


def _reshard(name: str, value: Any) -> Any:
    """True or false, or the name of an FSDP1 sharding strategy."""
    return value if isinstance(value, bool) else _sharding(name, value)


def _classes(name: str, value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


_STATE_DICT = kinds.choice("SHARDED_STATE_DICT", "FULL_STATE_DICT")


def _state_dict(name: str, value: Any) -> Any:
    if instead := instead_of(str(value), "fsdp_state_dict_type"):
        raise ConfigurationError(f"{name}: {value} is not available: {instead}")
    return _STATE_DICT.check(name, value)


def _fsdp_version(name: str, value: Any) -> int | None:
    """`None` for version 2, which is the only one, and 1 for a file that was written for FSDP1."""
    if str(value) not in ("1", "2"):
        raise ConfigurationError(f"{name}: {value!r:.80} is unknown; write 2")
    return 1 if str(value) == "1" else None


def _deepspeed(name: str, value: Any) -> dict[str, Any] | None:
    """Accelerate's options for DeepSpeed, each with its checked value; `None` if there are none."""
    if not isinstance(value, dict):
        raise ConfigurationError(f"{name} must be a section with keys such as zero_stage, not {value!r:.80}")
    found = {key: _deepspeed_option(f"{name}.{key}", key, each) for key, each in value.items()}
    return {key: each for key, each in found.items() if each is not None} or None


def _deepspeed_option(called: str, key: str, value: Any) -> Any:
    if key in ("gradient_accumulation_steps", "gradient_clipping"):
        return SETTINGS[key].parse_key(called, None if value == "auto" else value)
    if key in deepspeed.OPTIONS:
        return None if value in (None, "none") else deepspeed.OPTIONS[key][0].parse(called, value)
    if is_any(value, (*_UNSET_VALUES, "none")):
        return None
    hint = instead_of(key, "DeepSpeed") or did_you_mean(key, deepspeed.OPTIONS).removeprefix("; ")
    raise ConfigurationError(f"{called}: {value!r:.80} is not available: {hint or 'leave it out'}")


# fmt: off

_TRANSLATED = (
    Setting(
        Kind(_distributed_type, placeholder="KIND", choices=tuple(DISTRIBUTED)),
        f"What the ranks run on, or how models are distributed: {', '.join(DISTRIBUTED)}.",
        field="strategy", key="distributed_type", config=True,
    ),
    Setting(
        Kind(_deepspeed), "What DeepSpeed would do with distributed_type: DEEPSPEED; FSDP2 does the same.",
        field="fsdp", key="deepspeed_config", unset=_UNSET_VALUES,
    ),
    Setting(
        kinds.flag, "Use the CPU, even if there are accelerators.",
        field="device", default=False, key="use_cpu", config=True, launch="Hardware", option="cpu",
    ),
    Setting(
        Kind(_gpu_ids, placeholder="0,2"), "GPUs to use here, such as 0,2, as torch numbers them; or all.",
        field="gpus", default="all", key="gpu_ids", config=True, launch="Distributed",
    ),
)
"""Accelerate's keys that are not fields; `to_fields` translates them to these fields, and back."""


def _dynamo(name: str, kind: Kind, help: str, unset: Any) -> Setting:
    """A row for how models are compiled."""
    variable = f"ACCELERATE_DYNAMO_{name.upper()}"
    return Setting(
        kind, help, field="dynamo", rank_variable=variable, key=f"dynamo_{name}", unset=(unset,), launch="Resources"
    )


def _fsdp(name: str, kind: Kind, help: str, variable: str = "") -> Setting:
    """A row for how FSDP shards."""
    variable = variable or f"FSDP_{name.upper()}"
    return Setting(kind, help, field="fsdp", rank_variable=variable, key=f"fsdp_{name}", launch="FSDP")


def _parallelism(name: str, kind: Kind, help: str, unset: Any = 1) -> Setting:
    """A row for the dimensions in which ranks work together, as in `ParallelismConfig`."""
    key = f"parallelism_config_{name}"
    return Setting(
        kind, help, field="parallelism", rank_variable=key.upper(), key=key, unset=(unset,), launch="Parallelism"
    )


def _fsdp1(name: str, kind: Kind, *unset: Any, help: str = "") -> Setting:
    """A row for what only FSDP1 has, or only Accelerate needs: accepted at the values that change nothing."""
    return Setting(kind, help, field="fsdp", key=f"fsdp_{name}", unset=unset, launch="FSDP")


_ENTRIES = (
    _dynamo("mode", kinds.choice("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"),
            "The mode of torch.compile.", unset="default"),
    _dynamo("use_fullgraph", kinds.flag, "Fail if a model can't be compiled as a single graph.", unset=False),
    _dynamo("use_dynamic", kinds.flag, "Compile for dynamic shapes.", unset=False),
    _dynamo("use_regional_compilation", kinds.flag,
            "Compile repeated blocks rather than the whole model, which takes less time.", unset=False),
    _fsdp("reshard_after_forward", Kind(_reshard, kinds.flag.read, placeholder="true|false|STRATEGY"),
          "Whether to free a layer's parameters after its forward pass."),
    _fsdp("sharding_strategy", Kind(_sharding, placeholder="STRATEGY"),
          "FSDP1's name for the same choice: FULL_SHARD, SHARD_GRAD_OP, HYBRID_SHARD."),
    _fsdp("offload_params", kinds.flag, "Whether to keep parameters and optimizer states in the host's memory."),
    _fsdp("auto_wrap_policy", kinds.choice("TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP"),
          "How to find the layers to shard."),
    _fsdp("transformer_layer_cls_to_wrap", Kind(_classes, placeholder="CLASSES"),
          "The classes of layers to shard, separated by commas.", variable="FSDP_TRANSFORMER_CLS_TO_WRAP"),
    _fsdp("min_num_params", kinds.integer(0), "The fewest parameters of a layer to shard, with SIZE_BASED_WRAP."),
    _fsdp("state_dict_type", replace(_STATE_DICT, check=_state_dict), "How checkpoints are written."),
    _fsdp("activation_checkpointing", kinds.flag, "Whether to recompute activations in the backward pass."),
    _fsdp("activation_checkpointing_offload", kinds.flag,
          "Whether to keep the inputs of layers whose activations are recomputed in the host's memory."),
    _fsdp("cpu_ram_efficient_loading", kinds.flag,
          "Whether only rank 0 needs a model's weights before it is prepared."),
    _fsdp1("version", Kind(_fsdp_version, placeholder="2"), help="Only 2 is supported."),
    _fsdp1("backward_prefetch", kinds.choice("BACKWARD_POST"), *_UNSET_VALUES, "BACKWARD_PRE", "NO_PREFETCH"),
    _fsdp1("forward_prefetch", kinds.flag, *_UNSET_VALUES),
    _fsdp1("use_orig_params", kinds.flag, True),
    _fsdp1("sync_module_states", kinds.flag, True),
    _parallelism("dp_replicate_size", kinds.integer(1), "How many replicas of the model there are."),
    _parallelism("dp_shard_size", kinds.integer(1), "Over how many ranks FSDP2 shards each replica."),
    _parallelism("tp_size", kinds.integer(1), "How many ranks share each layer (tensor parallelism)."),
    _parallelism("cp_size", kinds.integer(1), "How many ranks share each sequence (context parallelism)."),
    _parallelism("cp_comm_strategy", kinds.choice("allgather", "alltoall"),
                 "How ranks that share a sequence exchange keys and values.", unset="allgather"),
)
"""The entries of the fields `dynamo`, `fsdp` and `parallelism`: the file has a section for each, as `fsdp_config`."""
# fmt: on
KEYS = {row.key: row for row in (*SETTINGS.values(), *_TRANSLATED, *_ENTRIES) if row.key}
"""The row of each key."""
FSDP1_KEYS = (
    "fsdp_version", "fsdp_backward_prefetch", "fsdp_forward_prefetch", "fsdp_use_orig_params", "fsdp_sync_module_states"
)  # fmt: skip
"""Keys that select what only FSDP1 has. Accelerate writes them into its files by default."""
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "compute_environment": (None, "LOCAL_MACHINE"),
    "same_network": (None, True, False),
    "main_training_function": (None, "main"),
    "parallelism_config_cp_backend": (None, "torch"),
    "parallelism_config_sp_size": (None, 1),
    "parallelism_config_sp_backend": (None, "deepspeed"),
    "parallelism_config_sp_seq_length": (None,),
    "parallelism_config_sp_seq_length_is_variable": (None, True),
    "parallelism_config_sp_attn_implementation": (None, "sdpa"),
    **dict.fromkeys(("command_file", "commands", "downcast_bf16", "fsdp_ignored_modules"), _UNSET_VALUES),
    **dict.fromkeys(("tpu_env", "tpu_name", "tpu_use_cluster", "tpu_use_sudo", "tpu_vm", "tpu_zone"), _UNSET_VALUES),
    **dict.fromkeys(("fp8_config", "ipex_config", "megatron_lm_config", "mpirun_config"), _UNSET_VALUES),
}
"""Keys without an effect, and the values that are accepted; `advice.py` says what to write in place of any other."""
GROUPS = ("fsdp_config", "dynamo_config", "parallelism_config")


def setting_called(name: str) -> Setting | None:
    """The setting that has a name, written with underscores, in any interface: as a key, an argument, or an option."""
    if name in SETTINGS:
        return SETTINGS[name]
    for row in (*SETTINGS.values(), *KEYS.values()):
        options = [option.lstrip("-").replace("-", "_") for option in row.magic]
        if name and name in (row.key, row.option, row.argument, *options):
            return SETTINGS.get(row.field, row)
    return None


def key_of(row: Setting) -> str:
    """The key that sets a setting, which for `gpus` is Accelerate's `gpu_ids`; empty if there is none."""
    return row.key or next((each.key for each in KEYS.values() if each.field == row.field), "")


def what_to_write(written: str, where: str) -> str:
    """What to write in one interface instead of a name that it does not have; empty if no interface has such a name.

    Args:
        written: The name, as the user wrote it in this interface: an argument, an option, or a key.
        where: The interface, as in `advice.py`.
    """
    name = written.lstrip("-").partition("=")[0].replace("-", "_")
    row = setting_called(name)
    return instead_of(name, where) or ("" if row is None else _IN_INTERFACES[where](row))


def _in_call(row: Setting) -> str:
    if row.argument:
        return f"pass {row.argument}"
    if row.magic:
        return f"set it with %accelerate {row.magic[-1]}, or in the configuration file"
    in_code = f", or pass {_PLUGINS[row.field]} to the Accelerator" if row.field in _PLUGINS else ""
    return f"set {row.key} in the configuration file{in_code}"


def _in_magic(row: Setting) -> str:
    if row.magic:
        return f"did you mean {row.magic[-1]}?"
    return f"pass {row.argument}= to notebook_launcher" if row.argument else f"set {row.key} in the configuration file"


def _in_cell_magic(row: Setting) -> str:
    return f"set it with %accelerate {row.magic[-1]}, in another cell" if row.magic else ""


def _on_command_line(row: Setting) -> str:
    key = KEYS.get(key_of(row))
    if key is not None and key.launch:
        return f"use --{key.option or key.key}"
    return f"only notebook_launcher has it, as {row.argument}=" if row.argument else ""


def _in_file(row: Setting) -> str:
    found = key_of(row)
    return f"did you mean {found}?" if found else f"pass {row.argument}= to notebook_launcher"


_IN_INTERFACES = {
    "notebook_launcher": _in_call,
    "%accelerate": _in_magic,
    "%%accelerate": _in_cell_magic,
    "notebook-accel launch": _on_command_line,
    "configuration file": _in_file,
}
"""How each interface names a setting of another one."""
_PLUGINS = {
    "fsdp": "fsdp_plugin=FullyShardedDataParallelPlugin(...)",
    "dynamo": "dynamo_plugin=TorchDynamoPlugin(...)",
    "parallelism": "parallelism_config=ParallelismConfig(...)",
}
"""The argument of an `Accelerator` that has the same settings as the keys of a field."""


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
        return KEYS[key].parse_key(called, value)
    if key not in NEUTRAL:
        instead = what_to_write(key, "configuration file")
        hint = f"; {instead}" if instead else did_you_mean(key, [*KEYS, *NEUTRAL, *GROUPS])
        elsewhere = " of the file" if instead.startswith("pass ") else ""
        raise ConfigurationError(f"{called} is not a setting{elsewhere}{hint}")
    allowed = NEUTRAL[key]
    if not is_any(kinds.flag.convert(value), allowed) and not (allowed is _UNSET_VALUES and _turns_nothing_on(value)):
        raise ConfigurationError(
            f"{called}: {value!r:.80} is not available here: {instead_of(key, 'configuration file')}"
        )
    return None


def _turns_nothing_on(section: Any) -> bool:
    """Whether no value of a section has an effect, as in `ipex_config: {ipex: false}`."""
    return isinstance(section, dict) and all(
        is_any(kinds.flag.convert(value), _UNSET_VALUES) for value in section.values()
    )


_SAME = [row for row in SETTINGS.values() if row.key and row.field != "num_processes"]
"""Settings whose value is the value of their key, unchanged."""


def to_fields(keys: Mapping[str, Any]) -> dict[str, tuple[Any, str]]:
    """The fields of `LaunchConfig` that keys of the file set: the value of each, and the key that set it.

    Raises:
        ConfigurationError: Some keys contradict each other.
    """
    found: dict[str, tuple[Any, str]] = {}
    kind = keys.get("distributed_type")
    if kind == "DEEPSPEED":
        translation = deepspeed.translate_options(keys.get("deepspeed_config") or {})
        kind = "FSDP" if translation.fsdp else None
        keys = {**keys, **translation.fsdp}
        for name, value in (
            ("strategy", "fsdp" if translation.fsdp else "ddp"),
            ("mixed_precision", translation.mixed_precision),
            ("gradient_accumulation_steps", translation.accumulation_steps),
            ("gradient_clipping", translation.clipping),
        ):
            if value is not None:
                found[name] = (value, "deepspeed_config")
        found["notices"] = ((translation.line,), "deepspeed_config")
    for name, value in DISTRIBUTED.get(keys.get("distributed_type") or "", {}).items():
        found[name] = (value, "distributed_type")
    if keys.get("use_cpu"):
        _set(found, "device", "cpu", "use_cpu")
    for row in _SAME:
        if keys.get(row.key) is not None:
            _set(found, row.field, keys[row.key], row.key)
    if keys.get("num_processes") is not None:
        _set(found, "num_processes", _processes_per_launch(keys), "num_processes")
    if keys.get("gpu_ids") is not None:
        chosen = tuple(map(int, keys["gpu_ids"].split(",")))
        if "num_processes" in found:
            chosen = chosen[: found["num_processes"][0]]  # as in Accelerate, whose ranks use the first of them
        _set(found, "gpus", chosen, "gpu_ids")
    for group in GROUPS:
        prefix = group.removesuffix("config")
        entries = {key: value for key, value in keys.items() if key.startswith(prefix) and value is not None}
        entries = {key: value for key, value in entries.items() if key not in (*FSDP1_KEYS, *SETTINGS)}
        if entries and (group != "fsdp_config" or kind in (None, "FSDP")):  # otherwise Accelerate ignores it, too
            found[prefix.rstrip("_")] = (entries, group)
    of_fsdp1 = [key for key in FSDP1_KEYS if keys.get(key) is not None]
    if of_fsdp1 and kind == "FSDP":
        found["notices"] = ((_fsdp1_notice(of_fsdp1),), "fsdp_config")
    return found


def _fsdp1_notice(keys: Sequence[str]) -> str:
    """The notice for a file that was written for FSDP1, with these of its keys."""
    others = [key for key in keys if key != "fsdp_version"]
    passed_over = f" {', '.join(others)} have no effect, because FSDP2 does not have them." if others else ""
    return (
        f"the settings are for FSDP1, but models are sharded by FSDP2, which needs no code changes.{passed_over} "
        "To avoid this notice, write fsdp_version: 2, or run notebook-accel config update"
    )


def _processes_per_launch(keys: Mapping[str, Any]) -> int:
    """The file counts the ranks on all nodes; a launch counts those on its own node, or all of them with a cluster."""
    if keys.get("cluster"):
        return int(keys["num_processes"])
    total, nodes = int(keys["num_processes"]), int(keys.get("num_machines") or 1)
    if total % nodes:
        raise ConfigurationError(f"num_processes: {total} can't be divided equally among num_machines: {nodes}")
    return total // nodes


def _set(found: dict[str, tuple[Any, str]], name: str, value: Any, key: str) -> None:
    if name in found and found[name][0] != value:
        other = found[name][1]
        raise ConfigurationError(f"{key} contradicts {other}: one says {value!r}, the other {found[name][0]!r}")
    found[name] = (value, key)


@dataclass(frozen=True)
class SourcedValue:
    """The value of one key of the file, and where it came from."""

    value: Any
    field: str
    """The field of `LaunchConfig` that it comes from."""
    source: str
    """Where the field's value came from."""


def from_config(config: LaunchConfig) -> dict[str, SourcedValue]:
    """The keys of a file that would set this configuration."""
    keys: dict[str, tuple[Any, str]] = {
        row.key: (value, row.field)
        for row in _SAME
        for value in [getattr(config, row.field)]
        if row.field in config.sources or value != row.default
    }
    if config.num_processes is not None:
        nodes = 1 if config.cluster else config.num_nodes
        keys["num_processes"] = (config.num_processes * nodes, "num_processes")
    if config.gpus is not None:
        keys["gpu_ids"] = (",".join(map(str, config.gpus)), "gpus")
    kind, name = _type_and_field(config)
    if kind:
        keys["distributed_type"] = (kind, name)
    if config.device == "cpu":
        keys["use_cpu"] = (True, "device")
    if config.device == "cpu" or DISTRIBUTED.get(kind, {}).get("device") == config.device:
        keys.pop("device", None)
    for name in ("fsdp", "dynamo", "parallelism"):
        keys |= {key: (value, name) for key, value in getattr(config, name).items()}
    return {
        key: SourcedValue(value, name, str(config.sources.get(name, "default"))) for key, (value, name) in keys.items()
    }


def _type_and_field(config: LaunchConfig) -> tuple[str, str]:
    """The value of `distributed_type`, and the field that it is derived from."""
    if config.strategy == "fsdp":
        return "FSDP", "strategy"
    if config.strategy == "spmd":
        return "SPMD", "strategy"
    if config.num_processes == 1 and config.num_nodes == 1:
        return "NO", "num_processes"
    if config.device == "cpu":
        return "MULTI_CPU", "device"
    if config.device == "tpu":
        return "XLA", "device"
    if config.device == "cuda" or config.gpus:
        return "MULTI_GPU", "device" if config.device else "gpus"
    return "", ""
