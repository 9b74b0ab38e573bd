"""Whether ranks can run on this machine's TPU, how many, and what they are to be told."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from notebook_accel.config import LaunchConfig
from notebook_accel.errors import ConfigurationError, HardwareError
from notebook_accel.hardware import Hardware, tpus
from notebook_accel.hardware.tpus import Tpu

ENGINE = "xla"
SPMD = "spmd"


def place(config: LaunchConfig, hardware: Hardware, held: Callable[[int], list[str]] = tpus.held) -> int:
    """The number of ranks.

    Raises:
        ConfigurationError: torch_xla cannot run what was asked for.
        HardwareError: There is no TPU that the ranks could use, or this notebook holds it.
    """
    tpu = hardware.tpu
    told = config.cite("device")
    if tpu is None:
        raise HardwareError(
            f"a TPU was asked for{told}, and this machine has none. On Colab and Kaggle choose a TPU as the notebook's "
            "accelerator. Pass device='cpu' to run on the CPU; to try out what is meant for a TPU, install "
            'notebook-accel[tpu] and set PJRT_DEVICE to "CPU" in the environment.'
        )
    if tpu.unusable:
        raise HardwareError(f"the ranks can't use {tpu}: {tpu.unusable}")
    if not tpu.emulated and (files := held(os.getpid())):
        raise HardwareError(
            f"an earlier cell has opened {', '.join(files)} in this notebook's own process, which holds these chips "
            "until it ends: restart the kernel, and touch no XLA device (torch_xla.device(), a tensor on 'xla', JAX) "
            "outside of the function that is launched"
        )
    if config.num_nodes > 1:
        raise ConfigurationError(
            f"num_nodes={config.num_nodes}{config.cite('num_nodes')}: ranks on TPUs run on one machine"
        )
    if config.mixed_precision in ("fp16", "fp8"):
        raise ConfigurationError(
            f"mixed_precision={config.mixed_precision!r}{config.cite('mixed_precision')} needs a GPU, and a TPU "
            "computes in bfloat16: use 'bf16' or 'no'"
        )
    if config.strategy == "fsdp":
        raise ConfigurationError(
            f"strategy='fsdp'{config.cite('strategy')} shards by torch.distributed, which a TPU has no part in: use "
            "'ddp' or 'spmd'"
        )
    return _size(config, tpu)


def _size(config: LaunchConfig, tpu: Tpu) -> int:
    told = config.cite("num_processes")
    asked = config.num_processes
    if config.strategy == SPMD:
        if asked not in (None, 1):
            raise ConfigurationError(
                f"num_processes={asked}{told}: with strategy='spmd' one rank drives all devices; leave it out"
            )
        return 1
    if tpu.emulated and asked is not None:
        return asked
    if asked not in (None, 1, tpu.ranks):
        raise ConfigurationError(
            f"num_processes={asked}{told}: torch_xla runs one rank on each of the {tpu.ranks} devices of {tpu}, or a "
            f"single rank; leave it out, or pass 1"
        )
    return asked or tpu.ranks


def environment(config: LaunchConfig, tpu: Tpu, size: int) -> Mapping[str, str]:
    """The variables that the ranks' process finds its devices by."""
    told = {"PJRT_DEVICE": "CPU" if tpu.emulated else "TPU"}
    if config.strategy == SPMD:
        told["NOTEBOOK_ACCEL_STRATEGY"] = SPMD
    elif tpu.emulated:
        told["CPU_NUM_DEVICES"] = str(size)
    return told


def check_engine(engine: str, device: str) -> None:
    """Whether an engine goes with a kind of device.

    Raises:
        ConfigurationError: It does not.
    """
    if (engine == ENGINE) != (device == "tpu"):
        raise ConfigurationError(
            f"the {engine} engine, which NOTEBOOK_ACCEL_ENGINE asks for, has no ranks on device={device!r}: unset it"
        )
