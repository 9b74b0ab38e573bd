"""Decides whether ranks can run on this node's TPU, how many, and with which environment."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from notebook_accel.config import LaunchConfig
from notebook_accel.errors import ConfigurationError, HardwareError
from notebook_accel.hardware import Hardware, tpus
from notebook_accel.hardware.tpus import Tpu

ENGINE = "xla"
SPMD = "spmd"


def count_ranks(config: LaunchConfig, hardware: Hardware, held: Callable[[int], list[str]] = tpus.held) -> int:
    """The number of ranks.

    Raises:
        ConfigurationError: torch_xla does not support the settings.
        HardwareError: There is no TPU that the ranks could use, or this notebook holds it.
    """
    tpu = hardware.tpu
    source = config.cite("device")
    if tpu is None:
        raise HardwareError(
            f"a TPU was requested{source}, but this machine has none. On Colab and Kaggle, choose a TPU as the "
            f"notebook's accelerator. Pass {config.spell('device', 'cpu')} to run on the CPU; to try out code meant "
            'for a TPU, install notebook-accel[tpu] and set PJRT_DEVICE to "CPU" in the environment.'
        )
    if tpu.unusable:
        raise HardwareError(f"the ranks can't use {tpu}: {tpu.unusable}")
    if not tpu.emulated and (files := held(os.getpid())):
        raise HardwareError(
            f"an earlier cell has opened {', '.join(files)} in this notebook's own process, which holds these chips "
            "until it ends: restart the kernel, and use no XLA device (torch_xla.device(), a tensor on 'xla', JAX) "
            "outside of the launched function"
        )
    if config.num_nodes > 1:
        raise ConfigurationError(
            f"num_nodes={config.num_nodes}{config.cite('num_nodes')}: ranks on TPUs run on one machine"
        )
    if config.mixed_precision in ("fp16", "fp8"):
        raise ConfigurationError(
            f"mixed_precision={config.mixed_precision!r}{config.cite('mixed_precision')} needs a GPU, but a TPU "
            "computes in bfloat16: use 'bf16' or 'no'"
        )
    if config.strategy == "fsdp":
        raise ConfigurationError(
            f"strategy='fsdp'{config.cite('strategy')} needs torch.distributed, which does not support TPUs: use "
            "'ddp' or 'spmd'"
        )
    return _size(config, tpu)


def _size(config: LaunchConfig, tpu: Tpu) -> int:
    source = config.cite("num_processes")
    requested = config.num_processes
    if config.strategy == SPMD:
        if requested not in (None, 1):
            raise ConfigurationError(
                f"num_processes={requested}{source}: with strategy='spmd' one rank drives all devices; leave it out"
            )
        return 1
    if tpu.emulated and requested is not None:
        return requested
    if requested not in (None, 1, tpu.ranks):
        raise ConfigurationError(
            f"num_processes={requested}{source}: torch_xla runs one rank on each of the {tpu.ranks} devices of {tpu}, "
            f"or a single rank; leave it out, or pass 1"
        )
    return requested or tpu.ranks


def environment(config: LaunchConfig, tpu: Tpu, size: int) -> Mapping[str, str]:
    """The environment variables by which torch_xla finds the devices."""
    environ = {"PJRT_DEVICE": "CPU" if tpu.emulated else "TPU"}
    if config.strategy == SPMD:
        environ["NOTEBOOK_ACCEL_STRATEGY"] = SPMD
    elif tpu.emulated:
        environ["CPU_NUM_DEVICES"] = str(size)
    return environ


def check_engine(engine: str, device: str) -> None:
    """Checks that an engine can start ranks on a kind of device.

    Raises:
        ConfigurationError: It cannot.
    """
    if (engine == ENGINE) != (device == "tpu"):
        raise ConfigurationError(
            f"the {engine} engine, which NOTEBOOK_ACCEL_ENGINE selects, can't run ranks on device={device!r}: unset it"
        )
