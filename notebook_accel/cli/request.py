"""From the options of `launch`, the saved settings and the hardware to what to start. Everything is checked here."""

from __future__ import annotations

import errno
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from notebook_accel.cli.choices import Choices, refuse_contradictions
from notebook_accel.cli.options import BY_NAME, OPTIONS
from notebook_accel.cli.program import program
from notebook_accel.config import DEFAULT_PORT
from notebook_accel.errors import ConfigurationError, HardwareError
from notebook_accel.hardware import DEFAULT_CPU_RANKS, Hardware

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_NEEDS_ELASTIC = ("tee", "max_restarts", "enable_cpu_affinity")
"""Options that only torch's launcher can follow, even for one rank."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """What to start on this machine."""

    program: tuple[str, ...]
    """The command of one rank, for a single one that needs no launcher."""
    elastic: tuple[str, ...] | None
    """The command line of torch's launcher; `None`: the program is run as it is."""
    environment: Mapping[str, str]
    """What is added to the ranks' environment."""
    quiet: bool = False
    debug: bool = False
    notices: Sequence[str] = ()
    """What was decided for the user."""
    world_size: int = 1


def make(
    target: str,
    arguments: Sequence[str],
    choices: Choices,
    hardware: Hardware,
    environ: Mapping[str, str],
) -> Request:
    """Decides what to start.

    Args:
        target: The script, module, program or notebook.
        arguments: Its own arguments.
        choices: The options.
        hardware: What is here.
        environ: The environment that the ranks inherit.

    Raises:
        ConfigurationError: An option, or a combination, cannot work.
        HardwareError: There are fewer devices than were asked for.
    """
    refuse_contradictions(choices)
    launched = program(target, arguments, choices)
    machines = _machines(choices)
    device, size, visible, notices = _place(choices, hardware, machines)
    variables = _variables(choices, device, size, visible, hardware, environ)
    alone = (sys.executable, "-m", *launched[1:]) if launched[0] == "--module" else (sys.executable, *launched)
    if launched[0] == "--no-python":
        alone = launched[1:]
    elastic = None
    if size * machines > 1 or any(choices.get(name) for name in _NEEDS_ELASTIC):
        elastic = (f"--nproc-per-node={size}", *_meeting(choices, machines), *_torch_options(choices), *launched)
    if machines > 1 and choices.get("rdzv_backend") == "c10d" and choices.given.get("machine_rank") is not None:
        notices = (*notices, "machine_rank has no effect with rdzv_backend c10d, which numbers the machines itself")
    return Request(
        program=alone,
        elastic=elastic,
        environment=variables,
        quiet=bool(choices.get("quiet")),
        debug=bool(choices.get("debug")),
        notices=notices,
        world_size=size * machines,
    )


# Where it runs


def _machines(choices: Choices) -> int:
    machines = choices.get("num_machines") or 1
    rank = choices.get("machine_rank")
    if rank is not None and rank >= machines:
        raise ConfigurationError(
            f"--machine_rank {rank} with --num_machines {machines}: the ranks of the machines are 0 to {machines - 1}"
        )
    return int(machines)


def _place(choices: Choices, hardware: Hardware, machines: int) -> tuple[str, int, str | None, tuple[str, ...]]:
    """The kind of device, the ranks on this machine, what `CUDA_VISIBLE_DEVICES` shall be, and what to tell."""
    asked = choices.get("num_processes")
    if asked is not None and asked % machines:
        raise ConfigurationError(
            f"--num_processes {asked} counts the ranks of all machines, and {asked} is no multiple of "
            f"--num_machines {machines}"
        )
    local = None if asked is None else asked // machines
    ids = choices.given.get("gpu_ids") if choices.get("cpu") else choices.get("gpu_ids")
    on_gpus = ids or choices.get("multi_gpu") or choices.get("distributed_type") == "MULTI_GPU"
    if choices.get("cpu") or not (hardware.gpus or on_gpus):
        return _place_on_cpu(choices, hardware, local)
    if not hardware.gpus:
        why = f": {hardware.hidden_gpus}" if hardware.hidden_gpus else ""
        raise HardwareError(f"GPUs were asked for, and torch can use none here{why}. Use --cpu for the CPU.")
    chosen = range(len(hardware.gpus)) if ids in (None, "all") else _numbers(str(ids), len(hardware.gpus))
    size = local or len(chosen)
    if size > len(chosen):
        raise HardwareError(
            f"{size} ranks were asked for on this machine, and there are {len(chosen)} GPUs for them: use "
            f"--num_processes {len(chosen) * machines}, or --cpu"
        )
    if choices.get("multi_gpu") and size * machines < 2:
        raise HardwareError(f"--multi_gpu asks for several GPUs, and this is {size} rank: leave it out")
    visible = None if ids in (None, "all") else ",".join(hardware.cuda_ids[index] for index in chosen)
    return "cuda", size, visible, ()


def _place_on_cpu(
    choices: Choices, hardware: Hardware, local: int | None
) -> tuple[str, int, str | None, tuple[str, ...]]:
    if choices.get("mixed_precision") in ("fp16", "fp8"):
        raise ConfigurationError(
            f"--mixed_precision {choices.get('mixed_precision')} needs a GPU, and these ranks run on the CPU: use "
            "bf16 or no"
        )
    if hardware.mps and not choices.get("cpu"):
        if (local or 1) > 1:
            raise ConfigurationError("an Apple GPU runs a single rank: use --num_processes 1, or --cpu for more")
        return "mps", 1, None, ()
    if local is not None:
        return "cpu", local, None, ()
    size = min(hardware.cores, DEFAULT_CPU_RANKS)
    why = "--cpu" if choices.get("cpu") else "no accelerator found"
    if not choices.get("cpu") and hardware.hidden_gpus:
        why = f"GPUs found, but {hardware.hidden_gpus}"
    if not choices.get("cpu") and hardware.kind == "tpu":
        why = "this command starts no ranks on a TPU, which notebook_launcher does"
    ranks = "1 rank" if size == 1 else f"{size} ranks"
    return "cpu", size, None, (f"{why}: {ranks} on the CPU (--num_processes sets the number)",)


def _numbers(ids: str, found: int) -> list[int]:
    entries = [each.strip() for each in ids.split(",")]
    if not all(each.isdecimal() for each in entries) or len(set(entries)) < len(entries):
        raise ConfigurationError(f"--gpu_ids {ids}: write numbers such as 0,2, each once, or all")
    if max(map(int, entries)) >= found:
        raise HardwareError(f"--gpu_ids {ids}: there are {found} GPUs here, numbered from 0")
    return [int(each) for each in entries]


# How the ranks meet


def _meeting(choices: Choices, machines: int) -> tuple[str, ...]:
    port = choices.get("main_process_port")
    address = choices.get("main_process_ip")
    if port is not None and port > 65535:
        raise ConfigurationError(f"--main_process_port {port}: ports are 0 to 65535")
    if machines == 1:
        if address not in (None, *_LOOPBACK):
            raise ConfigurationError(
                f"--main_process_ip {address} has no effect on one machine, which talks to itself on the loopback "
                "interface: leave it out, or give --num_machines"
            )
        if not port:
            return ("--standalone",)  # on a port that is free, and kept from the moment it is found
        _refuse_taken("127.0.0.1", port)
        return "--master-addr=127.0.0.1", f"--master-port={port}"
    if not address:
        raise ConfigurationError(
            f"--num_machines {machines} needs --main_process_ip: the address of the machine with rank 0"
        )
    if port == 0:
        raise ConfigurationError(
            "--main_process_port 0 stands for any free port, which the other machines can't know: give one that is "
            "free on the first machine"
        )
    port = port or DEFAULT_PORT
    rank = choices.get("machine_rank")
    if choices.get("rdzv_backend") == "c10d":
        return f"--nnodes={machines}", "--rdzv-backend=c10d", f"--rdzv-endpoint={address}:{port}"
    if rank is None:
        raise ConfigurationError(
            f"--num_machines {machines} needs --machine_rank, a different one on each machine, from 0; or "
            "--rdzv_backend c10d, which needs none"
        )
    if rank == 0:
        _refuse_taken("", port)
    return f"--nnodes={machines}", f"--node-rank={rank}", f"--master-addr={address}", f"--master-port={port}"


def _refuse_taken(host: str, port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise ConfigurationError(
                    f"--main_process_port {port} is in use by another program, perhaps an earlier launch: choose "
                    "another; on one machine leave it out, and a free one is found"
                ) from None
            raise ConfigurationError(f"--main_process_port {port} cannot be used: {error.strerror}") from None


def _torch_options(choices: Choices) -> list[str]:
    found = []
    for option in OPTIONS:
        value = choices.get(option.name)
        if option.torch and value is not None:
            found.append(f"--{option.torch.replace('_', '-')}={value}")
    if choices.get("enable_cpu_affinity"):
        found.append("--numa-binding=node")
    return found


# What the ranks are told


def _variables(
    choices: Choices,
    device: str,
    size: int,
    visible: str | None,
    hardware: Hardware,
    environ: Mapping[str, str],
) -> dict[str, str]:
    """What is added to the ranks' environment; options that neither line nor file gives leave it as it is."""
    found = {}
    for name, option in BY_NAME.items():
        value = choices.get(name)
        if not option.variable or value is None or (option.only_with and not choices.get(option.only_with)):
            continue
        found[option.variable] = str(value).lower() if isinstance(value, bool) else str(value)
    if choices.get("debug"):
        found["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"  # the same for collective operations of plain torch
    found["NOTEBOOK_ACCEL_DEVICE"] = device
    if size > 1:
        found["NOTEBOOK_ACCEL_BACKEND"] = "nccl" if device == "cuda" else "gloo"
    if device == "cpu":
        found |= {"ACCELERATE_USE_CPU": "true", "CUDA_VISIBLE_DEVICES": ""}
    if visible is not None:
        found["CUDA_VISIBLE_DEVICES"] = visible
        if "CUDA_DEVICE_ORDER" not in environ:
            found["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    threads = choices.get("num_cpu_threads_per_process")
    if threads is not None:
        found["OMP_NUM_THREADS"] = str(threads)
    elif size > 1 and "OMP_NUM_THREADS" not in environ:
        found["OMP_NUM_THREADS"] = str(max(1, hardware.cores // size))
    return {**found, **(choices.get("env") or {})}
