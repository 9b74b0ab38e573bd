"""From a configuration and the hardware to the ranks to start, and the environment of each."""

from __future__ import annotations

import errno
import socket
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from notebook_accel.config import DEFAULT_PORT, LaunchConfig, checks, variables
from notebook_accel.errors import ConfigurationError, HardwareError, LaunchError
from notebook_accel.hardware import DEFAULT_CPU_RANKS, Hardware
from notebook_accel.launch import capacity, chips, clusters, engines, interfaces, output, rendezvous
from notebook_accel.launch.engines.base import Engine, Machines, Meeting
from notebook_accel.launch.engines.cluster.engine import ClusterEngine

_BACKLOG = 4096
_PORT_PATIENCE = 2.0
"""Seconds to wait for a port that is taken."""
_LOOPBACK = "127.0.0.1"


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
        return output.label(self.config.label, self.first, self.local_size, self.world_size, rank)


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
    return engines.get(device=_device(config, hardware))


def engine_of(planned: Plan) -> Engine:
    """What starts the ranks of a plan that was made in another process."""
    if planned.config.cluster:
        return engines.of_cluster(planned.config.cluster, insecure=planned.config.insecure)
    return engines.get(planned.engine)


def _device(config: LaunchConfig, hardware: Hardware) -> str:
    return config.device or ("cuda" if config.gpus else hardware.kind)


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
        raise ConfigurationError(f"insecure=True{config.told('insecure')} has no effect without cluster=")
    if config.num_nodes > 1 and config.rdzv_backend != "static":
        raise ConfigurationError(
            checks.no_rendezvous("rdzv_backend", config.rdzv_backend) + config.told("rdzv_backend")
        )
    device = _device(config, hardware)
    chips.check_engine(engine.name, device)
    if config.strategy == chips.SPMD and device != "tpu":
        raise ConfigurationError(
            f"strategy='spmd'{config.told('strategy')} is a TPU's, and these ranks run on device={device!r}: use 'ddp' "
            "or 'fsdp'"
        )
    size, visible, shared, notice = _place(config, hardware, device, engine)
    if engine.max_ranks is not None and size > engine.max_ranks:
        told = config.told("num_processes")
        raise ConfigurationError(
            f"the {engine.name} engine runs at most {engine.max_ranks} rank, not {size}{told}: pass num_processes="
            f"{engine.max_ranks}, or choose another engine"
        )
    if engine.isolated:
        capacity.check(size, engine.name, config.told("num_processes"))
    _check_precision(config, device)
    return Plan(
        config=config,
        size=size,
        device=device,
        backend="xla" if device == "tpu" else "nccl" if device == "cuda" and not shared else "gloo",
        engine=engine.name,
        threaded=device == "tpu" and hardware.tpu is not None and hardware.tpu.threaded and size > 1,
        told=chips.environment(config, hardware.tpu, size) if device == "tpu" and hardware.tpu else {},
        visible_gpus=visible,
        threads=max(1, hardware.cores // size),
        place=_describe(config, hardware, device),
        notice="\n".join(
            (*config.notices, *([_NO_AFFINITY] if config.cpu_affinity else []), *([notice] if notice else []))
        ),
    )


def _make_on_cluster(config: LaunchConfig, engine: ClusterEngine) -> Plan:
    found = engine.survey(config.num_nodes)
    device = clusters.device(config, found)
    size = clusters.size(config, device, found)
    machines = clusters.machines(config, device, size, found)
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
        place=clusters.place(machines),
        notice="\n".join((*config.notices, *([_NO_AFFINITY] if config.cpu_affinity else []))),
    )


def _check_precision(config: LaunchConfig, device: str) -> None:
    if device == "cpu" and config.mixed_precision in ("fp16", "fp8"):
        raise ConfigurationError(
            f"mixed_precision={config.mixed_precision!r}{config.told('mixed_precision')} needs a GPU, and these ranks "
            "run on the CPU: use 'bf16' or 'no'"
        )


def _describe(config: LaunchConfig, hardware: Hardware, device: str) -> str:
    if device == "cuda":
        used = config.gpus or range(min(config.num_processes or len(hardware.gpus), len(hardware.gpus)))
        names = Counter(hardware.gpus[index].name for index in set(used))
        return ", ".join(f"{count} × {name}" for name, count in names.items())
    if device == "mps":
        return "an Apple GPU"
    if device == "tpu":
        return str(hardware.tpu)
    return f"CPU, {hardware.cores} core{'s' if hardware.cores > 1 else ''}"


def _place(config: LaunchConfig, hardware: Hardware, device: str, engine: Engine) -> tuple[int, str | None, bool, str]:
    """Returns the number of ranks, their `CUDA_VISIBLE_DEVICES`, whether they share a device, and what to tell."""
    if device == "cuda":
        return _place_on_gpus(config, hardware)
    if device == "tpu":
        return chips.place(config, hardware), None, False, ""
    if device == "mps":
        if not hardware.mps:
            raise HardwareError(
                f"device='mps' was asked for{config.told('device')}, and this machine has no Apple GPU that torch can "
                "use"
            )
        if config.num_processes not in (None, 1):
            raise ConfigurationError("an Apple GPU runs a single rank: pass num_processes=1, or device='cpu' for more")
        return 1, None, False, ""
    if config.num_processes is not None:
        return config.num_processes, None, False, ""
    limit = min(hardware.cores, DEFAULT_CPU_RANKS, engine.max_ranks or DEFAULT_CPU_RANKS)
    why = "no accelerator found" if config.device is None else "device='cpu'"
    if config.device is None and hardware.hidden_gpus:
        why = f"GPUs found, but {hardware.hidden_gpus}"
    if config.device is None and hardware.tpu is not None and hardware.tpu.unusable and not hardware.tpu.emulated:
        why = f"{hardware.tpu} found, but {hardware.tpu.unusable}"
    processes = f"{limit} process" + ("es" if limit > 1 else "")
    return limit, None, False, f"{why}: launching on {processes} of the CPU (num_processes sets the number)"


def _place_on_gpus(config: LaunchConfig, hardware: Hardware) -> tuple[int, str | None, bool, str]:
    found = len(hardware.gpus)
    if not found:
        hidden = f": {hardware.hidden_gpus}" if hardware.hidden_gpus else ""
        told = config.told("gpus") or config.told("device")
        raise HardwareError(
            f"GPUs were asked for{told}, and torch can use none here{hidden}. Pass device='cpu' to run on the CPU."
        )
    if config.gpus is None:
        size = config.num_processes or found
        if size > found:
            raise HardwareError(
                f"asked for {size} GPUs{config.told('num_processes')}, found {found}: pass num_processes={found}, "
                f"gpus={[index % found for index in range(size)]} to share them, or device='cpu'"
            )
        return size, None, False, ""
    if max(config.gpus) >= found:
        raise HardwareError(f"asked for GPU {max(config.gpus)}{config.told('gpus')}, found {found} (numbered from 0)")
    size = config.num_processes or len(config.gpus)
    if size != len(config.gpus):
        raise ConfigurationError(
            f"gpus={list(config.gpus)}{config.told('gpus')} names {len(config.gpus)} GPUs for "
            f"num_processes={size}{config.told('num_processes')} ranks"
        )
    distinct = list(dict.fromkeys(config.gpus))
    if len(distinct) < size and any(config.gpus[i] != distinct[i % len(distinct)] for i in range(size)):
        raise ConfigurationError(
            f"gpus={list(config.gpus)}: GPUs that are shared are given out in turn; write "
            f"gpus={[distinct[i % len(distinct)] for i in range(size)]}"
        )
    return size, ",".join(hardware.cuda_ids[index] for index in distinct), len(distinct) < size, ""


def environments(plan: Plan, meeting: Meeting, environ: Mapping[str, str]) -> list[dict[str, str]]:
    """The whole environment of each rank: the notebook's, the launch's, and what the user added, in this order.

    What only some frameworks read comes from the table of `rendezvous`, and gives way to all of them.
    """
    config = plan.config
    shared = clusters.shared_environment(environ) if plan.machines else dict(environ)
    shared |= {
        "WORLD_SIZE": str(plan.world_size),
        "LOCAL_WORLD_SIZE": str(plan.local_size),
        "GROUP_WORLD_SIZE": str(config.num_nodes),
        "ROLE_NAME": "default",
        "ROLE_WORLD_SIZE": str(plan.world_size),
        "TORCHELASTIC_RUN_ID": config.run_id,
        "TORCHELASTIC_RESTART_COUNT": str(meeting.attempt),
        "TORCHELASTIC_MAX_RESTARTS": str(config.max_restarts),
        "TORCHELASTIC_USE_AGENT_STORE": "True",  # the store is there already, and no rank has to host it
        "NOTEBOOK_ACCEL_DEVICE": plan.device,
        "NOTEBOOK_ACCEL_BACKEND": plan.backend,
        **plan.told,
    }
    shared.setdefault("OMP_NUM_THREADS", str(plan.threads))
    shared |= variables.for_ranks(config, environ)
    if plan.device == "cpu":
        shared |= {"ACCELERATE_USE_CPU": "true", "CUDA_VISIBLE_DEVICES": ""}
    else:
        shared.pop("ACCELERATE_USE_CPU", None)  # the notebook's own, which something higher has overruled
    if plan.visible_gpus:
        shared["CUDA_VISIBLE_DEVICES"] = plan.visible_gpus
        shared.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    if not meeting.is_arranged:
        shared |= {"MASTER_ADDR": meeting.host, "MASTER_PORT": str(meeting.port)}
        here = meeting.num_nodes == 1
        interface = interfaces.of(_LOOPBACK) if here else interfaces.towards(meeting.host, meeting.port)
        if interface:
            # Otherwise gloo takes whatever the host's name resolves to, and both listen beyond this machine.
            shared.setdefault("GLOO_SOCKET_IFNAME", interface)
            shared.setdefault("NCCL_SOCKET_IFNAME", interface)
    shared |= config.env
    return [
        {
            **shared,
            **told,
            "RANK": str(plan.first + number),
            "LOCAL_RANK": str(number % plan.local_size),
            "GROUP_RANK": str(config.node_rank + number // plan.local_size),
            "ROLE_RANK": str(plan.first + number),
        }
        for number, told in enumerate(rendezvous.variables(plan.size, plan.device, meeting, shared))
    ]


def meet(config: LaunchConfig, attempt: int) -> Meeting:
    """Opens the socket on which the ranks will meet. It listens from now on, so no port is ever lost to a race.

    A cluster's machines do that themselves.

    Raises:
        LaunchError: The port is taken, or the address is not one of this machine.
    """
    if config.cluster:
        return Meeting(
            host="",
            port=0,
            listener=None,
            num_nodes=config.num_nodes,
            run_id=config.run_id,
            attempt=attempt,
            is_arranged=True,
        )
    listener = None
    host, port = config.master_addr, config.port
    if config.num_nodes == 1:
        host, port = _LOOPBACK, 0 if port == DEFAULT_PORT else port
    if config.node_rank == 0:
        listener = _listen(host, port)
        port = listener.getsockname()[1]
    return Meeting(
        host=host,
        port=port,
        listener=listener,
        node_rank=config.node_rank,
        num_nodes=config.num_nodes,
        run_id=config.run_id,
        attempt=attempt,
        join_timeout=config.join_timeout,
    )


def _listen(host: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _bind(listener, (host, port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            advice = "another program uses it; choose another use_port, or 0 for any free one"
        elif error.errno == errno.EADDRNOTAVAIL:
            advice = (
                "that is no address of this machine; the machine with node_rank=0 is the one that master_addr names"
            )
        else:
            advice = str(error)
        raise LaunchError(f"the ranks can't meet at {host}:{port}: {advice}") from error
    return listener


def _bind(listener: socket.socket, address: tuple[str, int]) -> None:
    """Binds; waits a moment for a port that the store of a launch before is about to leave."""
    deadline = time.monotonic() + _PORT_PATIENCE
    while True:
        try:
            listener.bind(address)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() > deadline:
                raise
            time.sleep(_PORT_PATIENCE / 40)
        else:
            return
