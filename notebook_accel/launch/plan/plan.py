"""From a configuration and the hardware to the ranks to start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from notebook_accel.config import LaunchConfig, checks
from notebook_accel.errors import ConfigurationError
from notebook_accel.hardware import Hardware
from notebook_accel.launch import engines
from notebook_accel.launch.engines.contract import Engine, Machines
from notebook_accel.launch.engines.nodes import ClusterEngine
from notebook_accel.launch.job import text
from notebook_accel.launch.plan import capacity, cluster_nodes, devices, tpus


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a launch will do."""

    config: LaunchConfig
    size: int
    """Ranks that this notebook starts: on this machine, or on all machines of a cluster."""
    device: str
    backend: str
    """How ranks on these devices talk: `nccl` or `gloo` of `torch.distributed`, or `xla`."""
    engine: str
    """The name of the engine that starts them."""
    threaded: bool = False
    """Several ranks are threads of one process."""
    told: Mapping[str, str] = field(default_factory=dict)
    """What ranks on these devices need in their environment."""
    visible_gpus: str | None
    """`CUDA_VISIBLE_DEVICES` of the ranks, where it differs from the notebook's."""
    threads: int
    """CPU threads of each rank, unless `OMP_NUM_THREADS` is set."""
    machines: Machines | None = None
    """What is needed of a cluster; `None` for this machine."""
    place: str = ""
    """What the ranks run on, in words."""
    notice: str = ""
    """What was decided for the user, in one line."""

    @property
    def first(self) -> int:
        """The global rank of the first rank here."""
        return 0 if self.machines else self.config.node_rank * self.size

    @property
    def local_size(self) -> int:
        """Ranks on each machine."""
        return self.size // self.machines.count if self.machines else self.size

    @property
    def world_size(self) -> int:
        return self.size if self.machines else self.config.num_nodes * self.size

    def label(self, rank: int | str) -> str:
        """The label of output lines: of a global rank, or of several such as `0-3`."""
        return text.label(self.config.label, self.first, self.local_size, self.world_size, rank)


_NO_AFFINITY = (
    "enable_cpu_affinity holds for notebook-accel launch; ranks that are launched from Python run on any core"
)


def engine_for(config: LaunchConfig, hardware: Hardware) -> Engine:
    """What starts the ranks on the device that they will run on.

    Raises:
        ConfigurationError: There is no such engine, or none for this system.
    """
    if config.cluster:
        return engines.of_cluster(config.cluster, insecure=config.insecure)
    return engines.get(device=devices.kind(config, hardware))


def engine_of(planned: Plan) -> Engine:
    """What starts the ranks of a plan that was made in another process."""
    if planned.config.cluster:
        return engines.of_cluster(planned.config.cluster, insecure=planned.config.insecure)
    return engines.get(planned.engine)


def make(config: LaunchConfig, hardware: Hardware, engine: Engine) -> Plan:
    """Decides where the ranks run.

    Raises:
        ConfigurationError: The settings contradict each other or the device.
        HardwareError: There are fewer devices than were asked for.
        LaunchError: The cluster can't be reached.
    """
    if isinstance(engine, ClusterEngine):
        return _make_on_cluster(config, engine)
    if config.insecure:
        raise ConfigurationError(f"insecure=True{config.cite('insecure')} has no effect without cluster=")
    if config.num_nodes > 1 and config.rdzv_backend != "static":
        raise ConfigurationError(
            checks.explain_unavailable_rendezvous("rdzv_backend", config.rdzv_backend) + config.cite("rdzv_backend")
        )
    device = devices.kind(config, hardware)
    tpus.check_engine(engine.name, device)
    if config.strategy == tpus.SPMD and device != "tpu":
        raise ConfigurationError(
            f"strategy='spmd'{config.cite('strategy')} is a TPU's, and these ranks run on device={device!r}: use 'ddp' "
            "or 'fsdp'"
        )
    placed = devices.place(config, hardware, device, engine)
    size = placed.size
    if engine.max_ranks is not None and size > engine.max_ranks:
        told = config.cite("num_processes")
        raise ConfigurationError(
            f"the {engine.name} engine runs at most {engine.max_ranks} rank, not {size}{told}: pass num_processes="
            f"{engine.max_ranks}, or choose another engine"
        )
    if engine.isolated:
        capacity.check(size, engine.name, config.cite("num_processes"))
    _check_precision(config, device)
    return Plan(
        config=config,
        size=size,
        device=device,
        backend="xla" if device == "tpu" else "nccl" if device == "cuda" and not placed.shared else "gloo",
        engine=engine.name,
        threaded=device == "tpu" and hardware.tpu is not None and hardware.tpu.threaded and size > 1,
        told=tpus.environment(config, hardware.tpu, size) if device == "tpu" and hardware.tpu else {},
        visible_gpus=placed.visible_gpus,
        threads=max(1, hardware.cores // size),
        place=devices.describe(config, hardware, device),
        notice="\n".join(
            (
                *config.notices,
                *([_NO_AFFINITY] if config.cpu_affinity else []),
                *([placed.notice] if placed.notice else []),
            )
        ),
    )


def _make_on_cluster(config: LaunchConfig, engine: ClusterEngine) -> Plan:
    found = engine.survey(config.num_nodes)
    device = cluster_nodes.device(config, found)
    size = cluster_nodes.size(config, device, found)
    machines = cluster_nodes.machines(config, device, size, found)
    _check_precision(config, device)
    return Plan(
        config=config,
        size=size,
        device=device,
        backend="nccl" if device == "cuda" else "gloo",
        engine=engine.name,
        machines=machines,
        visible_gpus=None,
        threads=1,
        place=cluster_nodes.place(machines),
        notice=_notice(config),
    )


def _notice(config: LaunchConfig, decided: str = "") -> str:
    lines = [*config.notices, _NO_AFFINITY if config.cpu_affinity else "", decided]
    return "\n".join(line for line in lines if line)


def _check_precision(config: LaunchConfig, device: str) -> None:
    if device == "cpu" and config.mixed_precision in ("fp16", "fp8"):
        raise ConfigurationError(
            f"mixed_precision={config.mixed_precision!r}{config.cite('mixed_precision')} needs a GPU, and these ranks "
            "run on the CPU: use 'bf16' or 'no'"
        )
