"""Chooses the number of ranks and which of this node's devices they run on."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from notebook_accel.config import LaunchConfig
from notebook_accel.errors import ConfigurationError, HardwareError
from notebook_accel.hardware import DEFAULT_CPU_RANKS, Hardware
from notebook_accel.launch.plan import tpus

_ONE_GPU = "One GPU found; using 1 process (with {}, two share it)"


@dataclass(frozen=True)
class DeviceChoice:
    """The devices and the number of ranks."""

    size: int
    """The number of ranks."""
    environ: Mapping[str, str] = field(default_factory=dict)
    """Environment variables by which the ranks find these devices."""
    shared: bool = False
    """Several ranks share a device."""
    notice: str = ""
    """A choice that was made for the user, in one line; empty if there is none."""


def kind(config: LaunchConfig, hardware: Hardware) -> str:
    """The kind of device: `cuda`, `tpu`, `mps` or `cpu`."""
    return config.device or ("cuda" if config.gpus else hardware.kind)


def choose(config: LaunchConfig, hardware: Hardware, device: str, max_ranks: int | None = None) -> DeviceChoice:
    """Chooses among the devices of the given kind.

    Args:
        config: The settings.
        hardware: This node's hardware.
        device: The kind.
        max_ranks: The most ranks that can be started; `None` if there is no limit.

    Raises:
        ConfigurationError: The settings contradict each other or the device.
        HardwareError: There are fewer devices than requested.
    """
    return _CHOOSERS[device](config, hardware, max_ranks)


def _on_tpu(config: LaunchConfig, hardware: Hardware, max_ranks: int | None) -> DeviceChoice:
    size = tpus.count_ranks(config, hardware)
    return DeviceChoice(size, tpus.environment(config, hardware.tpu, size) if hardware.tpu else {})


def _on_apple(config: LaunchConfig, hardware: Hardware, max_ranks: int | None) -> DeviceChoice:
    if not hardware.mps:
        raise HardwareError(
            f"device='mps' was requested{config.cite('device')}, but this machine has no Apple GPU that torch can use"
        )
    if config.num_processes not in (None, 1):
        raise ConfigurationError(
            f"an Apple GPU runs a single rank: pass {config.spell('num_processes', 1)}, or "
            f"{config.spell('device', 'cpu')} for more"
        )
    return DeviceChoice(1)


def _on_cpu(config: LaunchConfig, hardware: Hardware, max_ranks: int | None) -> DeviceChoice:
    environ = {hardware.gpu_variable: ""}
    if config.num_processes is not None:
        return DeviceChoice(config.num_processes, environ)
    limit = min(hardware.cores, DEFAULT_CPU_RANKS, max_ranks or DEFAULT_CPU_RANKS)
    why = "No GPU found" if config.device is None else config.spell("device", "cpu")
    if config.device is None and hardware.hidden_gpus:
        why = f"GPUs found, but {hardware.hidden_gpus}"
    if config.device is None and hardware.tpu is not None and hardware.tpu.unusable and not hardware.tpu.emulated:
        why = f"{hardware.tpu} found, but {hardware.tpu.unusable}"
    processes = f"{limit} CPU process" + ("es" if limit > 1 else "")
    option = config.spell("num_processes")
    return DeviceChoice(limit, environ, notice=f"{why}; using {processes} (change with {option})")


def _on_gpus(config: LaunchConfig, hardware: Hardware, max_ranks: int | None) -> DeviceChoice:
    found = len(hardware.gpus)
    if not found:
        hidden = f": {hardware.hidden_gpus}" if hardware.hidden_gpus else ""
        source = config.cite("gpus") or config.cite("device")
        in_call = config.gpus is not None and not config.cite("gpus")  # where a device would contradict it
        advice = f"Leave out {config.spell('gpus')}" if in_call else f"Pass {config.spell('device', 'cpu')}"
        raise HardwareError(
            f"GPUs were requested{source}, but torch cannot use any on this machine{hidden}. "
            f"{advice} to run on the CPU."
        )
    if config.gpus is None:
        size = config.num_processes or found
        if size > found:
            raise HardwareError(
                f"asked for {size} GPUs{config.cite('num_processes')}, found {found}: pass "
                f"{config.spell('num_processes', found)}, {_shared(config, size, found)}or "
                f"{config.spell('device', 'cpu')}"
            )
        if config.wait == "free" and size < found:
            return DeviceChoice(size)  # which of them is known once so many are free
        _check_free(config, hardware, range(size))
        decided = not (config.num_processes or found > 1 or config.num_nodes > 1 or config.on_command_line)
        return DeviceChoice(size, notice=_ONE_GPU.format(config.spell("gpus", [0, 0])) if decided else "")
    if max(config.gpus) >= found:
        raise HardwareError(f"asked for GPU {max(config.gpus)}{config.cite('gpus')}, found {found} (numbered from 0)")
    size = config.num_processes or len(config.gpus)
    if size != len(config.gpus):
        raise ConfigurationError(
            f"gpus={list(config.gpus)}{config.cite('gpus')} names {len(config.gpus)} GPUs for "
            f"num_processes={size}{config.cite('num_processes')} ranks"
        )
    distinct = list(dict.fromkeys(config.gpus))
    if len(distinct) < size and any(config.gpus[i] != distinct[i % len(distinct)] for i in range(size)):
        raise ConfigurationError(
            f"gpus={list(config.gpus)}: shared GPUs are assigned to ranks in turn; write "
            f"gpus={[distinct[i % len(distinct)] for i in range(size)]}"
        )
    if len(distinct) < size:
        alone = [index for index in distinct if hardware.gpus[index].access == "exclusive"]
        if alone:
            raise HardwareError(
                f"GPU {alone[0]} is in an exclusive compute mode, which admits one process, so ranks can't share it"
                f"{config.cite('gpus')}: nvidia-smi -i {alone[0]} -c DEFAULT ends that mode"
            )
    _check_free(config, hardware, distinct)
    chosen = ",".join(hardware.gpu_ids[index] for index in distinct)
    return DeviceChoice(size, {hardware.gpu_variable: chosen}, len(distinct) < size)


_CHOOSERS: Mapping[str, Callable[[LaunchConfig, Hardware, int | None], DeviceChoice]] = {
    "cuda": _on_gpus,
    "tpu": _on_tpu,
    "mps": _on_apple,
    "cpu": _on_cpu,
}
"""By the `device` of a row of `ACCELERATORS`."""


def _check_free(config: LaunchConfig, hardware: Hardware, chosen: Iterable[int]) -> None:
    """Refuses GPUs that admit no further process. A rank that opened one would fail, without saying why."""
    for index in chosen:
        holder = hardware.exclusive_holders.get(index)
        if holder is None or (config.wait == "free" and holder != os.getpid()):
            continue
        free = [each for each in range(len(hardware.gpus)) if each not in hardware.exclusive_holders]
        where = "this notebook" if holder == os.getpid() else f"process {holder}"
        how = "restart the kernel and use no GPU in it" if holder == os.getpid() else "wait for its end"
        other = f", or pass {config.spell('gpus', free)}" if free else ""
        raise HardwareError(
            f"GPU {index} is in an exclusive compute mode, which admits one process, and is in use by {where}: "
            f"{how}{other}; nvidia-smi -i {index} -c DEFAULT ends that mode"
        )


def _shared(config: LaunchConfig, size: int, found: int) -> str:
    """An argument that makes ranks share GPUs, for a message; empty on the command line, which has none."""
    return (
        ""
        if config.on_command_line
        else f"{config.spell('gpus', [index % found for index in range(size)])} to share them, "
    )


def identify(config: LaunchConfig, hardware: Hardware, device: str) -> tuple[str, ...]:
    """What identifies the devices that the ranks run on: a GPU's UUID, otherwise the kind.

    If there are more GPUs than ranks, the launch waits until as many of them are free as it has ranks.
    """
    if device != "cuda":
        return (device,)
    return tuple(dict.fromkeys(hardware.gpus[index].uuid for index in _used_gpus(config, hardware)))


def _used_gpus(config: LaunchConfig, hardware: Hardware) -> Iterable[int]:
    found = len(hardware.gpus)
    return config.gpus or range(found if config.wait == "free" else min(config.num_processes or found, found))


def describe(config: LaunchConfig, hardware: Hardware, device: str) -> str:
    """The devices that the ranks run on, for messages."""
    if device == "cuda":
        used = set(_used_gpus(config, hardware))
        names = Counter(hardware.gpus[index].name for index in used)
        size = min(config.num_processes or len(used), len(used))
        if len(names) == 1:
            return f"{size} × {next(iter(names))}"
        found = ", ".join(f"{count} × {name}" for name, count in names.items())
        return f"{size} of {found}" if size < len(used) else found
    return str(hardware.tpu) if device == "tpu" else hardware.listings[device].devices[0].name
