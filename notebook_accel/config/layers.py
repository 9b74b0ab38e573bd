"""How settings from several layers become one configuration: defaults < file < environment < magic < call."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from notebook_accel.config import ssh_hosts
from notebook_accel.config.kinds import JOIN_TIMEOUT
from notebook_accel.config.settings import COMMAND_LINE, LOOPBACK, LaunchConfig, Source
from notebook_accel.errors import ConfigurationError


@dataclass(frozen=True)
class Layer:
    """The settings of one source. Each value is checked alone; `merge` checks whether all of them go together."""

    name: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)
    """By field of `LaunchConfig`."""
    locations: Mapping[str, str] = field(default_factory=dict)
    """By field, the exact location of the value."""

    def __add__(self, later: Layer) -> Layer:
        """This layer with the settings of a later one from the same source on top."""
        values = overlay(self.values, later.values)
        locations = {
            name: location for name, location in {**self.locations, **later.locations}.items() if name in values
        }
        return Layer(self.name, values, locations)


CHECKPOINTING = ("checkpoint_every", "checkpoint_keep", "checkpoint_resume", "time_limit")
"""Settings that have no effect without `checkpoint_dir`."""
_OVERRIDES: tuple[tuple[str, Callable[[Any], bool], tuple[str, ...]], ...] = (
    ("device", lambda device: device != "cuda", ("gpus",)),
    ("gpus", lambda gpus: gpus is not None, ("device", "num_processes")),
    ("num_nodes", lambda count: count == 1, ("node_rank", "master_addr", "port", "join_timeout", "rdzv_backend")),
    ("cluster", bool, ("gpus", "node_rank", "master_addr", "port", "join_timeout", "rdzv_backend", "run_id")),
    ("cluster", lambda address: not address, ("insecure",)),
    ("cluster", lambda address: bool(ssh_hosts.of(address)), ("num_nodes",)),
    ("max_restarts", lambda count: not count, ("min_processes",)),
    ("strategy", lambda strategy: strategy != "fsdp", ("fsdp", "notices")),
    ("checkpoint_dir", lambda folder: not folder, CHECKPOINTING),
    ("dynamo_backend", lambda backend: backend == "no", ("dynamo",)),
)
"""A field, a condition on its value, and the fields whose values from lower layers are then dropped: with
`device="cpu"` in a call, the GPUs that a file names must not count."""


def merge(layers: Iterable[Layer], *, in_magic: bool = False) -> LaunchConfig:
    """Merges layers into one configuration, the lowest layer first.

    Args:
        layers: The layers.
        in_magic: Whether the ranks are those of `%%accelerate`.

    Raises:
        ConfigurationError: Settings that do not go together, or that would have no effect.
    """
    values: dict[str, Any] = {}
    sources: dict[str, Source] = {}
    names = set()
    for layer in layers:
        names.add(layer.name)
        values = overlay(values, layer.values)
        named = {name: Source(layer.name, location) for name, location in layer.locations.items()}
        sources = {name: source for name, source in {**sources, **named}.items() if name in values}
    config = LaunchConfig(**values, sources=sources, on_command_line=COMMAND_LINE in names, in_magic=in_magic)
    check_together(config)
    return config


def overlay(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """The values of two layers together, by field; those of `above` win."""
    gone = {
        name
        for decisive, counts, outdated in _OVERRIDES
        if decisive in above and counts(above[decisive])
        for name in outdated
    }
    values = {name: value for name, value in below.items() if name not in gone}
    if above.get("cluster") and not below.get("cluster") and "num_processes" in values:
        values["num_processes"] *= below.get("num_nodes", 1)  # with a cluster it counts the ranks on all nodes
    if "num_processes" in above and values.get("gpus"):
        values["gpus"] = values["gpus"][: above["num_processes"]]  # the first of those to choose from
    # Of a mapping, a higher layer replaces single entries, not the whole.
    joined = {name: {**values.get(name, {}), **each} for name, each in above.items() if isinstance(each, Mapping)}
    return {**values, **above, **joined}


def check_together(config: LaunchConfig) -> None:
    """Checks that the values go together.

    Raises:
        ConfigurationError: Settings that do not go together, or that would have no effect.
    """
    nodes, several = config.num_nodes, config.num_nodes > 1
    if several and config.port == 0:
        raise ConfigurationError(
            f"use_port=0{config.cite('port')} means any free port, which the other machines can't know: with "
            f"num_nodes={nodes}{config.cite('num_nodes')}, give a port that is free on the first machine"
        )
    if config.node_rank >= nodes:
        raise ConfigurationError(
            f"node_rank={config.node_rank}{config.cite('node_rank')} with num_nodes={nodes}{config.cite('num_nodes')}: "
            f"the ranks of the machines are 0 to {nodes - 1}"
        )
    if not several and config.master_addr not in LOOPBACK:
        raise ConfigurationError(
            f"master_addr={config.master_addr!r}{config.cite('master_addr')} has no effect with num_nodes=1: a "
            "single machine uses the loopback interface. Leave it out, or give num_nodes."
        )
    if not several and config.join_timeout != JOIN_TIMEOUT:
        raise ConfigurationError(
            f"rdzv_conf{config.cite('join_timeout')} has no effect with num_nodes=1: there is no other machine to wait "
            "for"
        )
    if config.gpus is not None and config.device not in (None, "cuda"):
        raise ConfigurationError(
            f"gpus={list(config.gpus)}{config.cite('gpus')} contradicts device={config.device!r}{config.cite('device')}"
        )
    check_precision(config, config.device)
    if config.fsdp and config.strategy != "fsdp":
        raise ConfigurationError(
            f"{', '.join(config.fsdp)}{config.cite('fsdp')} would have no effect, since the strategy is "
            f"{config.strategy!r}{config.cite('strategy')}: leave them out, or choose strategy 'fsdp'"
        )
    for name in CHECKPOINTING:
        if name in config.sources and not config.checkpoint_dir:
            raise ConfigurationError(
                f"{config.spell(name)}{config.cite(name)} would have no effect, since no checkpoints are saved: leave "
                f"it out, or give {config.spell('checkpoint_dir')}, the folder to save them to"
            )
    _check_min_processes(config)
    _check_parallelism(config)
    if config.dynamo and config.dynamo_backend == "no":
        raise ConfigurationError(
            f"{', '.join(config.dynamo)}{config.cite('dynamo')} would have no effect, since nothing is compiled: leave "
            "them out, or choose a dynamo_backend such as inductor"
        )


def _check_parallelism(config: LaunchConfig) -> None:
    if not config.parallelism:
        return
    named = f"{', '.join(config.parallelism)}{config.cite('parallelism')}"
    if config.device == "tpu" or config.strategy == "spmd":
        raise ConfigurationError(f"{named} would have no effect on a TPU: leave it out")
    sizes = [value for name, value in config.parallelism.items() if name.endswith("_size")]
    if not sizes:
        raise ConfigurationError(f"{named} would have no effect without parallelism_config_cp_size: give both")
    if config.num_processes is not None and math.prod(sizes) != config.num_processes * _counted_nodes(config):
        raise ConfigurationError(
            f"{named} are for {' × '.join(map(str, sizes))} = {math.prod(sizes)} ranks, but "
            f"num_processes{config.cite('num_processes')} is {config.num_processes * _counted_nodes(config)}: change "
            "one of them"
        )


def _check_min_processes(config: LaunchConfig) -> None:
    least = config.min_processes
    if least is None:
        return
    named = f"{config.spell('min_processes', least)}{config.cite('min_processes')}"
    if not config.max_restarts:
        raise ConfigurationError(
            f"{named} has no effect without restarts: give {config.spell('max_restarts')} too, or leave it out"
        )
    if config.num_processes is not None and least > config.num_processes * _counted_nodes(config):
        raise ConfigurationError(
            f"{named} is more than the {config.num_processes * _counted_nodes(config)} ranks of "
            f"num_processes{config.cite('num_processes')}"
        )


def _counted_nodes(config: LaunchConfig) -> int:
    """The machines that `num_processes` has to be multiplied by, to count all ranks."""
    return 1 if config.cluster else config.num_nodes


def check_precision(config: LaunchConfig, device: str | None) -> None:
    """Checks that the ranks' device can compute in the precision.

    Raises:
        ConfigurationError: It can't.
    """
    if device == "cpu" and config.mixed_precision in ("fp16", "fp8"):
        raise ConfigurationError(
            f"mixed_precision={config.mixed_precision!r}{config.cite('mixed_precision')} needs a GPU, but these ranks "
            f"run on the CPU{config.cite('device')}: use 'bf16' or 'no'"
        )
