"""Translates a configuration of DeepSpeed's ZeRO to FSDP2 where both mean the same, and refuses the rest by name.

Accelerate's options for DeepSpeed (`OPTIONS`) are first put in the form of DeepSpeed's own configuration, which has
sections such as `zero_optimization`. Each key of that is translated, left out because the results don't depend on it
(`_LEFT_OUT`), or refused; `advice.py` says what to write instead.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from notebook_accel.advice import instead_of
from notebook_accel.config import kinds
from notebook_accel.config.kinds import Kind
from notebook_accel.errors import ConfigurationError, did_you_mean

_DEVICE = kinds.choice("none", "cpu", "nvme")
OPTIONS: dict[str, tuple[Kind, str]] = {
    "deepspeed_config_file": (replace(kinds.text, placeholder="FILE"), "DeepSpeed's own configuration, as JSON."),
    "zero_stage": (kinds.integer(0), "The stage of ZeRO: 1 and 2 shard while they step, 3 always."),
    "offload_optimizer_device": (_DEVICE, "cpu keeps parameters and optimizer states in the host's memory."),
    "offload_param_device": (_DEVICE, "The same."),
    "zero3_init_flag": (kinds.flag, ""),
    "zero3_save_16bit_model": (kinds.flag, ""),
    "offload_optimizer_nvme_path": (kinds.text, ""),
    "offload_param_nvme_path": (kinds.text, ""),
    "deepspeed_moe_layer_cls_names": (kinds.text, ""),
    "deepspeed_multinode_launcher": (kinds.text, ""),
}
"""Accelerate's options for DeepSpeed, which are also keys of its file: their values, and what they do.

Beside them there are `gradient_clipping` and `gradient_accumulation_steps`, which need no DeepSpeed here.
"""
_AUTO = "auto"
_OFF: tuple[Any, ...] = (None, False, 0, "", "none", _AUTO, [], {})
_LEFT_OUT = """
    train_batch_size train_micro_batch_size_per_gpu steps_per_print wall_clock_breakdown memory_breakdown dump_state
    zero_allow_untested_optimizer zero_force_ds_cpu_optimizer prescale_gradients gradient_predivide_factor
    disable_allgather aio.* activation_checkpointing.* checkpoint.* comms_logger.* flops_profiler.* tensorboard.*
    wandb.* csv_monitor.* comet.* monitor_config.* use_node_local_storage load_universal_checkpoint
    fp16.auto_cast fp16.initial_scale_power fp16.loss_scale_window fp16.hysteresis fp16.consecutive_hysteresis
    fp16.min_loss_scale bf16.immediate_grad_update bf16.check_grad_overflow
    zero_optimization.allgather_* zero_optimization.contiguous_gradients zero_optimization.elastic_checkpoint
    zero_optimization.gather_16bit_weights_on_model_save zero_optimization.ignore_unused_parameters
    zero_optimization.load_from_fp32_weights zero_optimization.memory_efficient_linear
    zero_optimization.offload_optimizer.* zero_optimization.offload_param.* zero_optimization.overlap_comm
    zero_optimization.overlap_reduce_scatter zero_optimization.reduce_* zero_optimization.round_robin_gradients
    zero_optimization.stage3_* zero_optimization.sub_group_size zero_optimization.use_multi_rank_bucket_allreduce
    zero_optimization.zero_hpz_partition_size zero_optimization.param_persistence_threshold
    zero_optimization.model_persistence_threshold zero_optimization.max_live_parameters
    zero_optimization.max_reuse_distance zero_optimization.prefetch_bucket_size
    zero3_init_flag zero3_save_16bit_model deepspeed_moe_layer_cls_names deepspeed_multinode_launcher
"""
"""Keys that change how fast or with how much memory DeepSpeed trains, or what it reports, and not the results."""


@dataclass(frozen=True)
class Translation:
    """What a configuration of DeepSpeed's means here."""

    stage: int
    fsdp: Mapping[str, Any]
    """The keys of the configuration file for FSDP2, such as `fsdp_reshard_after_forward`; empty for stage 0."""
    mixed_precision: str | None
    """`None`: as chosen elsewhere. The same holds for the next one."""
    accumulation_steps: int | None
    clipping: float | None
    """The greatest norm of the gradients; `None`: they are not clipped."""
    left_out: tuple[str, ...]
    """The keys that have no counterpart, and whose values don't change the results."""

    @property
    def line(self) -> str:
        """What was done, and what was left out."""
        runs = f"FSDP2 ({', '.join(f'{key}: {value}' for key, value in self.fsdp.items())})" if self.fsdp else "DDP"
        parts = [f"ZeRO stage {self.stage} of DeepSpeed runs as {runs}"]
        if self.mixed_precision is not None:
            parts.append(f"mixed_precision: {self.mixed_precision}")
        if self.accumulation_steps is not None:
            parts.append(f"gradient_accumulation_steps: {self.accumulation_steps}")
        if self.clipping is not None:
            parts.append(f"gradient_clipping: {self.clipping:g}")
        left_out = f". Left out, because the results don't depend on it: {', '.join(self.left_out)}"
        return ", ".join(parts) + (left_out if self.left_out else "")


def translate_options(options: Mapping[str, Any]) -> Translation:
    """Translates Accelerate's options for DeepSpeed, with `gradient_clipping` and `gradient_accumulation_steps`.

    Raises:
        ConfigurationError: They contradict each other, or one of them has no counterpart.
    """
    given = {name: value for name, value in options.items() if value not in (None, "none")}
    path = given.pop("deepspeed_config_file", None)
    if path is None:
        return translate(of_options(given))
    neutral = ("zero3_init_flag", "deepspeed_moe_layer_cls_names", "deepspeed_multinode_launcher")
    beside = [name for name in given if name not in neutral]
    if beside:
        raise ConfigurationError(
            f"{', '.join(beside)} would have no effect beside deepspeed_config_file: {path}. Leave them out, or set "
            "them in that file."
        )
    return translate({**read(path), **given})


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Reads a configuration of DeepSpeed's from a JSON file.

    Raises:
        ConfigurationError: It can't be read, or does not have the settings of ZeRO.
    """
    try:
        found = json.loads(Path(path).expanduser().read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"{os.fspath(path)}, the configuration of DeepSpeed, can't be read: {error}") from None
    except ValueError as error:
        raise ConfigurationError(f"{os.fspath(path)}, the configuration of DeepSpeed, is not JSON: {error}") from None
    return of_deepspeed(found, os.fspath(path))


def of_deepspeed(found: Any, called: str) -> dict[str, Any]:
    """Checks that something is a configuration of DeepSpeed's, and fills in what Accelerate does.

    Raises:
        ConfigurationError: It has no settings of ZeRO.
    """
    if not isinstance(found, Mapping) or not isinstance(found.get("zero_optimization"), Mapping):
        raise ConfigurationError(f"{called}, the configuration of DeepSpeed, has no section zero_optimization")
    return {"gradient_accumulation_steps": 1, **found}


def of_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration of DeepSpeed that Accelerate makes of its options."""
    zero = {"stage": options.get("zero_stage", 2)}
    offloading = {
        name: {
            key: options[f"offload_{kind}_{key}"]
            for key in ("device", "nvme_path")
            if f"offload_{kind}_{key}" in options
        }
        for name, kind in (("offload_optimizer", "optimizer"), ("offload_param", "param"))
    }
    taken = {"zero_stage", *(name for name in options if name.startswith("offload_"))}
    return {
        "gradient_accumulation_steps": _AUTO,
        "gradient_clipping": _AUTO,
        "zero_optimization": {**zero, **offloading},
        **{name: value for name, value in options.items() if name not in taken},
    }


def translate(config: Mapping[str, Any]) -> Translation:
    """Translates a configuration of DeepSpeed's.

    A value `auto` is what Accelerate puts in its place: the Accelerator's precision and steps of accumulation, and a
    clipping to 1.

    Raises:
        ConfigurationError: It has a key without a counterpart, or a value that is not valid.
    """
    found = dict(_leaves({"bf16" if key == "bfloat16" else key: value for key, value in config.items()}))
    stage = _number(found, "zero_optimization.stage", default=0)
    if stage not in (0, 1, 2, 3):
        raise ConfigurationError(f"zero_optimization.stage: {stage!r} must be 0, 1, 2, or 3")
    is_offloaded = _is_offloaded(found)
    steps = _number(found, "gradient_accumulation_steps", default=None)
    if steps is not None and (type(steps) is not int or steps < 1):
        raise ConfigurationError(f"gradient_accumulation_steps: {steps!r} must be a whole number, at least 1")
    clipping = 1.0 if found.get("gradient_clipping") == _AUTO else _number(found, "gradient_clipping", default=0)
    found.pop("gradient_clipping", None)
    precision = _precision(found)
    _check_batch_sizes(found, steps)
    left_out = tuple(key for key, value in found.items() if value not in _OFF and _is_left_out(key, value))
    fsdp: dict[str, Any] = {"fsdp_reshard_after_forward": stage == 3} if stage else {}
    if is_offloaded and not stage:
        raise ConfigurationError("offloading needs a stage of ZeRO: set zero_optimization.stage to 1, 2, or 3")
    if is_offloaded:
        fsdp["fsdp_offload_params"] = True
    return Translation(stage, fsdp, precision, steps, clipping or None, left_out)


def _leaves(section: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The values of a configuration and its sections, by keys such as `zero_optimization.stage`."""
    for key, value in section.items():
        if isinstance(value, Mapping) and value.get("enabled", True) is False:
            continue
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _number(found: dict[str, Any], key: str, default: Any) -> Any:
    """Takes a number out; `auto` and a missing one are the default."""
    value = kinds.read_number(found.pop(key, default))
    if value is None or value == _AUTO:
        return default
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0:
        raise ConfigurationError(f"{key}: {value!r:.80} must be a number, or auto")
    return value


def _is_offloaded(found: dict[str, Any]) -> bool:
    is_offloaded = bool(found.pop("zero_optimization.cpu_offload", False))
    for part in ("offload_optimizer", "offload_param"):
        device = found.pop(f"zero_optimization.{part}.device", None) or "none"
        if device == "nvme":
            raise ConfigurationError(
                f"zero_optimization.{part}.device: nvme has no counterpart, because FSDP2 offloads to the host's "
                "memory only: write cpu"
            )
        if device not in ("none", "cpu", _AUTO):
            raise ConfigurationError(f"zero_optimization.{part}.device: {device!r:.80} must be cpu or none")
        is_offloaded |= device == "cpu"
    return is_offloaded


def _precision(found: dict[str, Any]) -> str | None:
    chosen = [name for name in ("fp16", "bf16") if found.pop(f"{name}.enabled", None) in (True, "true", "True")]
    if len(chosen) > 1:
        raise ConfigurationError("fp16.enabled and bf16.enabled contradict each other: leave one of them out")
    return next(iter(chosen), None)


def _check_batch_sizes(found: Mapping[str, Any], steps: int | None) -> None:
    """The size of the batches is the loader's. But numbers that no number of ranks fits are a mistake."""
    whole, part = found.get("train_batch_size"), found.get("train_micro_batch_size_per_gpu")
    if isinstance(whole, int) and isinstance(part, int) and steps and (not part or whole % (part * steps)):
        raise ConfigurationError(
            f"train_batch_size: {whole} is not train_micro_batch_size_per_gpu: {part} times "
            f"gradient_accumulation_steps: {steps} times a number of ranks"
        )


def _is_left_out(key: str, value: Any) -> bool:
    """Whether a key is left out.

    Raises:
        ConfigurationError: It has no counterpart.
    """
    if any(fnmatchcase(key, pattern) for pattern in _LEFT_OUT.split()):
        return True
    similar = did_you_mean(key, [pattern for pattern in _LEFT_OUT.split() if "*" not in pattern])
    instead = instead_of(key, "DeepSpeed") or f"FSDP2 has no counterpart: leave it out{similar}"
    raise ConfigurationError(f"{key}: {value!r:.80} of DeepSpeed's configuration is not available: {instead}")
