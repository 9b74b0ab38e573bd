"""From the options of `launch`, the saved settings and the hardware to what to start. Everything is checked here."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from notebook_accel.cli.launch import placement
from notebook_accel.cli.launch.choices import Choices, refuse_contradictions
from notebook_accel.cli.launch.options import BY_NAME, FSDP, OPTIONS
from notebook_accel.cli.launch.placement import Placement
from notebook_accel.cli.launch.program import program
from notebook_accel.cli.launch.rendezvous import meeting
from notebook_accel.config import environment as variables
from notebook_accel.config.environment import FSDP_VARIABLES
from notebook_accel.errors import ConfigurationError
from notebook_accel.hardware import Hardware

_WRAPPER = Path(__file__).parents[1] / "watch" / "wrapper.py"
_NEEDS_ELASTIC = ("tee", "max_restarts")
"""Options that only torch's launcher can follow, even for one rank."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """What to start on this machine."""

    launched: tuple[str, ...]
    """The script, module or program with its arguments, as torch's launcher is told them."""
    options: tuple[str, ...] | None
    """Those of torch's launcher; `None`: a single rank, which needs no launcher."""
    environment: Mapping[str, str]
    """What is added to the ranks' environment."""
    placement: Placement
    world_size: int = 1
    quiet: bool = False
    debug: bool = False
    notices: Sequence[str] = ()
    """What was decided for the user."""

    @property
    def program(self) -> tuple[str, ...]:
        """The command of a single rank."""
        if self.launched[0] == "--no-python":
            return self.launched[1:]
        if self.launched[0] == "--module":
            return (sys.executable, "-m", *self.launched[1:])
        return (sys.executable, *self.launched)

    def elastic(self) -> tuple[str, ...]:
        """The command line of torch's launcher."""
        assert self.options is not None
        wrapper = () if self.launched[0] == "--no-python" else (str(_WRAPPER),)
        return (*self.options, *wrapper, *self.launched)


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
    machines = placement.machines(choices)
    placed = placement.place(choices, hardware, machines)
    environment = _environment(choices, placed, hardware, environ)
    options = None
    binding, unbound = _binding(choices, placed)
    if placed.size * machines > 1 or binding or any(choices.get(name) for name in _NEEDS_ELASTIC):
        met = meeting(choices, machines)
        options = (f"--nproc-per-node={placed.size}", *met.options, *_torch_options(choices), *binding)
        environment = {**{name: value for name, value in met.environment.items() if name not in environ}, **environment}
    notices = (*choices.notices, *placed.notices, *unbound)
    if machines > 1 and choices.get("rdzv_backend") == "c10d" and choices.given.get("machine_rank") is not None:
        notices = (*notices, "machine_rank has no effect with rdzv_backend c10d, which numbers the machines itself")
    return Request(
        launched=launched,
        options=options,
        environment=environment,
        placement=placed,
        world_size=placed.size * machines,
        quiet=bool(choices.get("quiet")),
        debug=bool(choices.get("debug")),
        notices=notices,
    )


def _torch_options(choices: Choices) -> list[str]:
    found = []
    for option in OPTIONS:
        value = choices.get(option.name)
        if option.torch and value is not None:
            found.append(f"--{option.torch.replace('_', '-')}={value}")
    return found


def _binding(choices: Choices, placed: Placement) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The option of torch's launcher that keeps ranks on cores, and what to tell where there is nothing to keep to."""
    if not choices.get("enable_cpu_affinity"):
        return (), ()
    if placed.device == "cuda":
        return ("--numa-binding=node",), ()
    why = f"enable_cpu_affinity keeps ranks on the cores next to their GPUs, and these run on {placed.words}"
    if choices.given.get("enable_cpu_affinity"):
        raise ConfigurationError(f"--{why}: leave it out")
    return (), (f"{why}: it has no effect",)


def _environment(choices: Choices, placed: Placement, hardware: Hardware, environ: Mapping[str, str]) -> dict[str, str]:
    """What is added to the ranks' environment; options that neither line nor file gives leave it as it is."""
    fsdp = {name: choices.get(name) for name in FSDP_VARIABLES} if choices.get("use_fsdp") else None
    found = variables.fsdp_environment(fsdp, environ)
    for name, option in BY_NAME.items():
        value = choices.get(name)
        if not option.variable or option.group == FSDP or value is None:
            continue
        if option.only_with and not choices.get(option.only_with):
            continue
        found[option.variable] = str(value).lower() if isinstance(value, bool) else str(value)
    if choices.get("debug"):
        found["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"  # the same for collective operations of plain torch
    device, size, visible = placed.device, placed.size, placed.visible
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
