"""The environment variables of a rank, as torchrun, this package and `accelerate launch` set them; read only here."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from notebook_accel.config import PRECISIONS
from notebook_accel.config.kinds import norm, truth
from notebook_accel.errors import ConfigurationError


@dataclass(frozen=True, kw_only=True)
class Environment:
    """What the launch sets for this process; the defaults are those of a process without a launch."""

    rank: int = 0
    local_rank: int = 0
    world_size: int = 1
    local_world_size: int = 1
    device: str | None = None
    """The kind of device that the launch chose."""
    backend: str | None = None
    """The backend of `torch.distributed` that the launch chose."""
    torch_device: str | None = None
    """The device that the user chose for this process, such as `cuda:3`."""
    cpu: bool = False
    """Whether to use the CPU even if there are accelerators."""
    mixed_precision: str = "no"
    accumulation_steps: int = 1
    clipping: float | None = None
    """The greatest norm of the gradients, to which each optimizer step clips them."""
    compile_backend: str | None = None
    compile_mode: str | None = None
    compile_fullgraph: bool = False
    compile_dynamic: bool | None = None
    compile_regions: bool = False
    debug: bool = False
    checkpoint_dir: str = ""
    """The folder for the checkpoints of `Accelerator.epochs`; empty: it saves none."""
    checkpoint_every: str = "5 min"
    """Steps, or a time, from one of them to the next."""
    checkpoint_keep: int = 3
    checkpoint_resume: bool = True
    stop_at: float | None = None
    """When such a training run ends, with a checkpoint, in seconds since the epoch."""
    attempt: int = 0
    """How often the group of ranks was restarted after a failure."""
    job: str = ""
    """The ID of the launch's job; empty for a process that another launcher has started."""
    fsdp: Mapping[str, str] | None = None
    """Accelerate's `FSDP_*` variables, for an Accelerator without a plugin; `None`: no sharding."""
    parallelism: bool = False
    """Whether Accelerate's `PARALLELISM_CONFIG_*` variables are for an Accelerator without dimensions."""


_UNAVAILABLE = {
    "ACCELERATE_USE_DEEPSPEED": "DeepSpeed's ZeRO runs as FSDP2 here: unset it, and start the script with "
    "`notebook-accel launch` and the same configuration file, or pass Accelerator(deepspeed_plugin=DeepSpeedPlugin())",
    "ACCELERATE_USE_MEGATRON_LM": "Megatron-LM is not available here: unset it, and use FSDP, or "
    "Accelerator(torch_tp_plugin=...) for tensor parallel layers",
}
"""Accelerate's variables for what is not here, and what to do instead. They would otherwise train with DDP."""


def read(environ: Mapping[str, str] | None = None) -> Environment:
    """Reads the environment: the variables of torchrun, of this package's launches, and of `accelerate launch`.

    Raises:
        ConfigurationError: A variable has an invalid value, or one that `WORLD_SIZE` requires is missing.
    """
    environ = os.environ if environ is None else environ
    size = _number(environ, "WORLD_SIZE", 1)
    missing = [name for name in ("RANK", "MASTER_ADDR", "MASTER_PORT") if size > 1 and not environ.get(name)]
    if missing:
        raise ConfigurationError(
            f"WORLD_SIZE={size} means that there are other ranks, but {' and '.join(missing)} is not set, so this one "
            "cannot find them: start it with notebook_launcher or torchrun, or unset WORLD_SIZE"
        )
    for name, instead in _UNAVAILABLE.items():
        if flag(environ, name):
            raise ConfigurationError(f"{name} is set, perhaps by `accelerate launch`, but {instead}")
    precision = (environ.get("ACCELERATE_MIXED_PRECISION") or "no").lower()
    if precision not in PRECISIONS:
        raise ConfigurationError(f"ACCELERATE_MIXED_PRECISION={precision!r} must be one of {', '.join(PRECISIONS)}")
    compile_backend = environ.get("ACCELERATE_DYNAMO_BACKEND") or "no"
    return Environment(
        rank=_number(environ, "RANK", 0),
        local_rank=_number(environ, "LOCAL_RANK", 0),
        world_size=size,
        local_world_size=_number(environ, "LOCAL_WORLD_SIZE", size),
        device=environ.get("NOTEBOOK_ACCEL_DEVICE"),
        backend=environ.get("NOTEBOOK_ACCEL_BACKEND"),
        torch_device=environ.get("ACCELERATE_TORCH_DEVICE") or None,
        cpu=flag(environ, "ACCELERATE_USE_CPU"),
        mixed_precision=precision,
        accumulation_steps=_number(environ, "ACCELERATE_GRADIENT_ACCUMULATION_STEPS", 1),
        clipping=_norm(environ, "ACCELERATE_GRADIENT_CLIPPING"),
        compile_backend=None if compile_backend.lower() == "no" else compile_backend.lower(),
        compile_mode=environ.get("ACCELERATE_DYNAMO_MODE") or None,
        compile_fullgraph=flag(environ, "ACCELERATE_DYNAMO_USE_FULLGRAPH"),
        compile_dynamic=flag(environ, "ACCELERATE_DYNAMO_USE_DYNAMIC") or None,
        compile_regions=flag(environ, "ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION"),
        debug=flag(environ, "ACCELERATE_DEBUG_MODE"),
        checkpoint_dir=environ.get("NOTEBOOK_ACCEL_CHECKPOINT_DIR", ""),
        checkpoint_every=environ.get("NOTEBOOK_ACCEL_CHECKPOINT_EVERY") or "5 min",
        checkpoint_keep=_number(environ, "NOTEBOOK_ACCEL_CHECKPOINT_KEEP", 3),
        checkpoint_resume=flag(environ, "NOTEBOOK_ACCEL_CHECKPOINT_RESUME", True),
        stop_at=float(environ.get("NOTEBOOK_ACCEL_STOP_AT") or 0) or None,
        attempt=_number(environ, "TORCHELASTIC_RESTART_COUNT", 0),
        job=environ.get("NOTEBOOK_ACCEL_JOB", ""),
        fsdp=_starting_with(environ, "FSDP_") if flag(environ, "ACCELERATE_USE_FSDP") else None,
        parallelism=flag(environ, "ACCELERATE_USE_PARALLELISM_CONFIG"),
    )


def _starting_with(environ: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {name: value for name, value in environ.items() if name.startswith(prefix) and value}


def _number(environ: Mapping[str, str], name: str, default: int) -> int:
    text = environ.get(name, "")
    if not text:
        return default
    if not text.isdecimal():
        raise ConfigurationError(f"{name}={text!r} in the environment must be a number")
    return int(text)


def _norm(environ: Mapping[str, str], name: str) -> float | None:
    text = environ.get(name) or "auto"
    return None if text in ("auto", "none") else float(norm.parse(f"{name} in the environment", text))


def flag(environ: Mapping[str, str], name: str, default: bool = False) -> bool:
    """Whether a variable says yes.

    Raises:
        ConfigurationError: It says neither yes nor no.
    """
    text = environ.get(name) or str(default)
    found = truth(text)
    if found is None:
        raise ConfigurationError(f"{name}={text.lower()!r} in the environment must be true or false")
    return found
