"""Decides which ranks to start, from the configuration and the hardware: `make` returns a `Plan`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from notebook_accel.config import LaunchConfig, kinds
from notebook_accel.config.layers import check_precision
from notebook_accel.errors import ConfigurationError
from notebook_accel.hardware import Hardware, accelerators
from notebook_accel.launch import engines
from notebook_accel.launch.engines.contract import Engine, NodeInfo, NodeRequest
from notebook_accel.launch.job import text
from notebook_accel.launch.plan import capacity, cluster_nodes, devices, tpus
from notebook_accel.rank_spans import counted


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a launch will do."""

    config: LaunchConfig
    size: int
    """Ranks that this notebook starts: on this node, or on all nodes of a cluster."""
    device: str
    backend: str
    """The backend of collectives: `nccl` or `gloo` of `torch.distributed`, or `xla`."""
    engine: str
    """The name of the engine that starts them."""
    threaded: bool = False
    """Whether the ranks are threads of one process."""
    device_environ: Mapping[str, str] = field(default_factory=dict)
    """Environment variables by which the ranks find their devices."""
    threads: int
    """CPU threads of each rank, unless `OMP_NUM_THREADS` is set."""
    node_request: NodeRequest | None = None
    """The cluster nodes that the ranks need; `None` if they run on this node."""
    device_ids: tuple[str, ...] = ()
    """What identifies these devices in any process of this node; empty if the ranks run on a cluster.

    A launch that waits for any of several GPUs has them all, until it is planned again with those that are free.
    """
    device_text: str = ""
    """The devices that the ranks run on, for messages."""
    notice: str = ""
    """Choices that were made for the user, one per line."""
    call: str = ""
    """The function and its arguments as text, to be shown with the job."""
    arguments: Mapping[str, str] = field(default_factory=dict)
    """The arguments as text, by the names of their parameters."""
    part_of: str = ""
    """The ID of the sweep that the launch is a trial of; empty if it is none."""

    @property
    def first_rank(self) -> int:
        """The global rank of the first rank that this notebook starts."""
        return 0 if self.node_request else self.config.node_rank * self.size

    @property
    def local_size(self) -> int:
        """Ranks on each node."""
        return self.size // self.node_request.count if self.node_request else self.size

    @property
    def world_size(self) -> int:
        return self.size if self.node_request else self.config.num_nodes * self.size

    def noting(self, line: str) -> Plan:
        """The plan with one more line in its notice, unless the line is empty."""
        return replace(self, notice=_joined(self.notice, line))

    def label(self, rank: int | str) -> str:
        """The label of output lines: of a global rank, or of several such as `0-3`."""
        return text.label(self.config.label, self.first_rank, self.local_size, self.world_size, rank)


TORCHRUN = "torchrun"
"""Stands for an engine where torch's elastic launcher starts the ranks."""
_NO_AFFINITY = "enable_cpu_affinity applies only to notebook-accel launch; ranks launched from Python run on any core"


def engine_for(config: LaunchConfig, hardware: Hardware, *, in_process: bool = False) -> Engine:
    """The engine for the device that the ranks will run on, or the one whose only rank runs in this process.

    Raises:
        ConfigurationError: NOTEBOOK_ACCEL_ENGINE names an unknown engine, there is none for this system, or a cluster
            is to run a rank in this process.
    """
    if in_process:
        if config.cluster:
            raise ConfigurationError(
                f"in_process=True runs the only rank in this process, but cluster={config.cluster!r}"
                f"{config.cite('cluster')} names other machines: leave one of them out"
            )
        return engines.get("inprocess")
    if config.cluster:
        return engines.for_cluster(config.cluster, insecure=config.insecure)
    return engines.get(device=devices.kind(config, hardware))


def engine_of(planned: Plan) -> Engine:
    """The engine of a plan that was made in another process."""
    if planned.config.cluster:
        return engines.for_cluster(planned.config.cluster, insecure=planned.config.insecure)
    return engines.get(planned.engine)


def make(config: LaunchConfig, hardware: Hardware, engine: Engine) -> Plan:
    """Decides where the ranks run.

    Raises:
        ConfigurationError: The settings contradict each other or the device.
        HardwareError: There are fewer devices than requested.
        LaunchError: The cluster can't be reached.
    """
    config = cluster_nodes.with_all_hosts(config)
    _check_can_wait(config, hardware)
    nodes = engine.nodes(config.num_nodes)
    if nodes is not None:
        return _with_enough_ranks(_make_on_nodes(config, engine.name, nodes))
    _check_can_shrink(config, devices.kind(config, hardware))
    if config.insecure:
        raise ConfigurationError(f"insecure=True{config.cite('insecure')} has no effect without cluster=")
    if config.num_nodes > 1 and config.rdzv_backend != "static":
        raise ConfigurationError(
            kinds.explain_unavailable_rendezvous("rdzv_backend", config.rdzv_backend) + config.cite("rdzv_backend")
        )
    tpus.check_engine(engine.name, devices.kind(config, hardware))
    planned = _make_here(config, hardware, engine.name, engine.max_ranks)
    if engine.isolated:
        capacity.check(planned.size, engine.name, config.cite("num_processes"))
    return _with_enough_ranks(planned).noting(_NO_AFFINITY if config.cpu_affinity else "")


def make_for_torchrun(config: LaunchConfig, hardware: Hardware) -> Plan:
    """Decides where the ranks of this node run if torch's elastic launcher starts them instead of an engine.

    Raises:
        ConfigurationError: The settings contradict each other or the device, or apply only to launches from Python.
        HardwareError: There are fewer devices than requested.
    """
    if config.cluster:
        raise ConfigurationError(
            f"the settings name machines of the cluster {config.cluster!r}{config.cite('cluster')}, which only "
            "launches from a notebook use. Pass --num_machines 1 for this machine alone, or run the same command on "
            "each machine with --num_machines and --machine_rank."
        )
    if hardware.tpu is not None:
        why = "this command can't start ranks on a TPU (notebook_launcher can)"
        hardware = hardware.without("tpu", why)
    planned = _make_here(config, hardware, TORCHRUN)
    capacity.check(planned.size, TORCHRUN, config.cite("num_processes"))
    return planned


def _check_can_shrink(config: LaunchConfig, device: str) -> None:
    """Refuses `min_processes` where a restart can't have fewer ranks."""
    if config.min_processes is None:
        return
    named = f"{config.spell('min_processes', config.min_processes)}{config.cite('min_processes')}"
    if config.num_nodes > 1:
        raise ConfigurationError(
            f"{named} does not work with num_nodes={config.num_nodes}{config.cite('num_nodes')}, since each machine "
            "restarts its own ranks: use cluster=, whose machines one launch starts, or leave it out"
        )
    if device not in ("cpu", "cuda"):
        raise ConfigurationError(
            f"{named} does not work on device={device!r}: its ranks can't be fewer after a restart. Leave it out."
        )


def _check_can_wait(config: LaunchConfig, hardware: Hardware) -> None:
    """Refuses `wait` where nothing tells whether the devices are free."""
    if config.wait == "no":
        return
    if config.cluster or config.num_nodes > 1:
        raise ConfigurationError(
            "wait='free' looks at the GPUs of this machine only, but the launch uses several machines: leave it out"
        )
    device = devices.kind(config, hardware)
    if device != "cuda":
        raise ConfigurationError(
            f"wait='free' waits for GPUs, but these ranks run on device={device!r}, which jobs share: leave it out"
        )


def _with_enough_ranks(planned: Plan) -> Plan:
    config = planned.config
    if config.min_processes is not None and planned.size < config.min_processes:
        raise ConfigurationError(
            f"{config.spell('min_processes', config.min_processes)}{config.cite('min_processes')} is more than the "
            f"{planned.size} ranks that this launch starts: leave it out, or make it smaller"
        )
    return planned


def _make_here(config: LaunchConfig, hardware: Hardware, engine: str, max_ranks: int | None = None) -> Plan:
    """Decides where ranks run on this node."""
    device = devices.kind(config, hardware)
    if config.strategy == tpus.SPMD and device != "tpu":
        raise ConfigurationError(
            f"strategy='spmd'{config.cite('strategy')} needs a TPU, but these ranks run on device={device!r}: use "
            "'ddp' or 'fsdp'"
        )
    choice = devices.choose(config, hardware, device, max_ranks)
    size = choice.size
    if max_ranks is not None and size > max_ranks:
        raise ConfigurationError(
            f"the {engine} engine runs at most {max_ranks} rank, not {size}{config.cite('num_processes')}: pass "
            f"{config.spell('num_processes', max_ranks)}, or choose another engine"
        )
    check_precision(config, device)
    as_many = config.spell("num_processes", hardware.cores)
    crowding = capacity.crowding(size, hardware.cores, as_many) if device == "cpu" else ""
    return Plan(
        config=config,
        size=size,
        device=device,
        backend="gloo" if choice.shared else accelerators.backend(device),
        engine=engine,
        threaded=device == "tpu" and hardware.tpu is not None and hardware.tpu.threaded and size > 1,
        device_environ=choice.environ,
        threads=max(1, hardware.cores // size),
        device_ids=devices.identify(config, hardware, device),
        device_text=devices.describe(config, hardware, device),
        notice=_joined(*config.notices, choice.notice, crowding),
    )


def _make_on_nodes(config: LaunchConfig, engine: str, found: Sequence[NodeInfo]) -> Plan:
    """Decides where ranks run on the nodes of a cluster."""
    device = cluster_nodes.device(config, found)
    size = cluster_nodes.size(config, device, found)
    node_request = cluster_nodes.request(config, device, size, found)
    check_precision(config, device)
    return Plan(
        config=config,
        size=size,
        device=device,
        backend=accelerators.backend(device),
        engine=engine,
        node_request=node_request,
        device_environ={"CUDA_VISIBLE_DEVICES": ""} if device == "cpu" else {},
        threads=1,
        device_text=cluster_nodes.describe(node_request),
        notice=_joined(*config.notices, _NO_AFFINITY if config.cpu_affinity else ""),
    )


def _joined(*lines: str) -> str:
    return "\n".join(line for line in lines if line)


def preview(plan: Plan) -> str:
    """What a launch would do, in one line."""
    config = plan.config
    steps = config.gradient_accumulation_steps
    parts = {
        f"{counted(plan.size)} on {plan.device_text}": True,
        f"machine {config.node_rank} of {config.num_nodes}": config.num_nodes > 1 and not config.cluster,
        plan.backend: plan.world_size > 1,
        config.mixed_precision: config.mixed_precision != "no",
        config.strategy.upper(): config.strategy != "ddp",
        f"gradients of {steps} batches added up": steps > 1,
    }
    return "a launch now: " + " · ".join(part for part, counts in parts.items() if counts)
