"""Where the ranks of a launch run: how many on this machine, and on which devices."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from notebook_accel.cli.launch.choices import Choices
from notebook_accel.errors import ConfigurationError, HardwareError
from notebook_accel.hardware import DEFAULT_CPU_RANKS, Hardware


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Where the ranks of this machine run."""

    device: str
    """`cpu`, `cuda` or `mps`."""
    size: int
    """The number of ranks."""
    description: str
    """What they run on, as messages name it."""
    visible: str | None = None
    """The value for `CUDA_VISIBLE_DEVICES`; `None` leaves it as it is."""
    notices: tuple[str, ...] = ()
    """Notices of what was decided for the user."""


def machines(choices: Choices) -> int:
    """The number of machines that take part, this one included.

    Raises:
        ConfigurationError: The rank of this machine is out of range, or the settings name a cluster.
    """
    if choices.get("cluster") and choices.given.get("num_machines") is None:
        raise ConfigurationError(
            f"the settings name machines of the cluster {choices.get('cluster')!r}, which only a notebook's launches "
            "use (notebook-accel config show tells where it is set). Pass --num_machines 1 for this machine alone, or "
            "run the same command on each machine with --num_machines and --machine_rank."
        )
    count = choices.get("num_machines") or 1
    rank = choices.get("machine_rank")
    if rank is not None and rank >= count:
        raise ConfigurationError(
            f"--machine_rank {rank} with --num_machines {count}: the ranks of the machines are 0 to {count - 1}"
        )
    return int(count)


def place_ranks(choices: Choices, hardware: Hardware, machines: int) -> Placement:
    """Where the ranks of this machine run, as the options say, or by what there is.

    Raises:
        ConfigurationError: The options cannot work.
        HardwareError: There are fewer devices than were asked for.
    """
    requested = choices.get("num_processes")
    if requested is not None and requested % machines:
        raise ConfigurationError(
            f"--num_processes {requested} counts the ranks of all machines, and {requested} is no multiple of "
            f"--num_machines {machines}"
        )
    local = None if requested is None else requested // machines
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
    names = Counter(hardware.gpus[index].name for index in [*chosen][:size])
    description = ", ".join(f"{count} × {name}" for name, count in names.items())
    return Placement(device="cuda", size=size, description=description, visible=visible)


def _place_on_cpu(choices: Choices, hardware: Hardware, local: int | None) -> Placement:
    if choices.get("mixed_precision") in ("fp16", "fp8"):
        raise ConfigurationError(
            f"--mixed_precision {choices.get('mixed_precision')} needs a GPU, and these ranks run on the CPU: use "
            "bf16 or no"
        )
    if hardware.mps and not choices.get("cpu"):
        if (local or 1) > 1:
            raise ConfigurationError("an Apple GPU runs a single rank: use --num_processes 1, or --cpu for more")
        return Placement(device="mps", size=1, description="an Apple GPU")
    description = f"CPU, {hardware.cores} core{'s' if hardware.cores > 1 else ''}"
    if local is not None:
        return Placement(device="cpu", size=local, description=description)
    size = min(hardware.cores, DEFAULT_CPU_RANKS)
    why = "--cpu" if choices.get("cpu") else "no accelerator found"
    if not choices.get("cpu") and hardware.hidden_gpus:
        why = f"GPUs found, but {hardware.hidden_gpus}"
    if not choices.get("cpu") and hardware.kind == "tpu":
        why = "this command starts no ranks on a TPU, which notebook_launcher does"
    ranks = "1 rank" if size == 1 else f"{size} ranks"
    notice = f"{why}: {ranks} on the CPU (--num_processes sets the number)"
    return Placement(device="cpu", size=size, description=description, notices=(notice,))


def _numbers(ids: str, found: int) -> list[int]:
    entries = [each.strip() for each in ids.split(",")]
    if not all(each.isdecimal() for each in entries) or len(set(entries)) < len(entries):
        raise ConfigurationError(f"--gpu_ids {ids}: write numbers such as 0,2, each once, or all")
    if max(map(int, entries)) >= found:
        raise HardwareError(f"--gpu_ids {ids}: there are {found} GPUs here, numbered from 0")
    return [int(each) for each in entries]
