"""`LaunchConfig`, the settings of one launch; and `SETTINGS`, a row for each that users can set, with all its names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from notebook_accel.config import checks
from notebook_accel.config.checks import JOIN_TIMEOUT, Check

PRECISIONS = ("no", "fp16", "bf16", "fp8")
DEVICES = ("cpu", "cuda", "mps", "tpu")
STRATEGIES = ("ddp", "fsdp", "spmd")
DEFAULT_PORT = 29500
LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class Source:
    """Where a value came from."""

    layer: str
    """`file`, `environment`, `magic` or `call`."""
    location: str
    """The location in that layer, for the user: `mixed_precision in /home/me/.config/…`, `%accelerate --gpus`."""

    def __str__(self) -> str:
        return self.location


@dataclass(frozen=True, kw_only=True)
class LaunchConfig:
    """How to start the ranks of one launch."""

    num_processes: int | None = None
    """Ranks on this machine; `None`: one per accelerator, otherwise one per physical core, up to 4."""
    mixed_precision: str = "no"
    port: int = DEFAULT_PORT
    """On a single node, 29500 stands for any free port."""
    master_addr: str = "127.0.0.1"
    node_rank: int = 0
    num_nodes: int = 1
    cluster: str = ""
    """Where the nodes come from: `auto`, `slurm`, `ray://host:port` or `host:port`; empty for this machine, or for
    nodes that each make the same call. With a cluster, `num_processes` counts the ranks on all nodes."""
    insecure: bool = False
    """Whether to accept a cluster that requires no token."""
    rdzv_backend: str = "static"
    """How several nodes find each other: `static`; from the command line also `c10d`."""
    run_id: str = "none"
    """Only nodes with the same ID join each other."""
    join_timeout: float = JOIN_TIMEOUT
    """Seconds to wait for the other nodes."""
    max_restarts: int = 0
    heartbeat: float = 0.1
    """Seconds between two heartbeats of a rank."""
    label: str | None = None
    """A template for the label of output lines."""
    gpus: tuple[int, ...] | None = None
    """Indices, as torch numbers the GPUs in the notebook."""
    device: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    timeout: float | None = None
    """Seconds that the whole launch may take."""
    stall_after: float | None = 60.0
    """Seconds without progress, while ranks wait for others, before a stall is reported; `None`: never."""
    gradient_accumulation_steps: int = 1
    strategy: str = "ddp"
    """How an `Accelerator` on the ranks distributes models if it is not given a plugin."""
    fsdp: Mapping[str, Any] = field(default_factory=dict)
    """The settings of FSDP, by the keys of Accelerate's file, such as `fsdp_offload_params`."""
    dynamo_backend: str = "no"
    """The torch.compile backend for prepared models."""
    dynamo: Mapping[str, Any] = field(default_factory=dict)
    """The settings for compiling them, by the keys of Accelerate's file, such as `dynamo_mode`."""
    debug: bool = False
    """Whether ranks compare shapes before each collective."""
    cpu_affinity: bool = False
    """Whether each rank is bound to the cores close to its GPU, if torch's launcher starts it."""
    notices: tuple[str, ...] = field(default=(), compare=False)
    """Lines to show to the user at launch."""
    sources: Mapping[str, Source] = field(default_factory=dict, compare=False, repr=False)
    """Where each value came from, by field; fields that are missing here have their defaults."""
    on_command_line: bool = field(default=False, compare=False)
    """Whether the launch is one of `notebook-accel launch`, so that messages name its options."""

    def cite(self, name: str) -> str:
        """Where a value came from, in brackets, for messages; empty for an argument of the call."""
        source = self.sources.get(name)
        return "" if source is None or source.layer == "call" else f" (from {source})"

    def spell(self, name: str, value: Any = None) -> str:
        """How the user writes a setting in this kind of launch: its name and value, or without one only the name."""
        if not self.on_command_line:
            argument = next(each.argument for each in SETTINGS if each.field == name)
            return argument if value is None else f"{argument}={value!r}"
        if name == "device":
            return f"--{value}"
        if name == "num_processes" and value is not None:
            value *= self.num_nodes  # the option counts the ranks on all nodes
        return f"--{name}" if value is None else f"--{name} {value}"


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One field of `LaunchConfig`, and its names for users."""

    field: str
    check: Check
    read: Callable[[str], Any] = checks.read_text
    """Converts it from text."""
    argument: str = ""
    """Its name among the parameters of `notebook_launcher`."""
    variables: tuple[str, ...] = ()
    """Environment variables, in order of precedence: this package's, then Accelerate's."""
    flags: tuple[str, ...] = ()
    """Options of `%accelerate` and `notebook-accel config`, the usual form last."""
    value: str = ""
    """The placeholder for its value on help pages."""
    choices: tuple[str, ...] = ()
    summary: str = ""


SETTINGS = (
    Setting(
        field="num_processes",
        check=checks.integer(1),
        read=checks.read_number,
        argument="num_processes",
        variables=("NOTEBOOK_ACCEL_NUM_PROCESSES",),
        flags=("-n", "--num-processes"),
        value="N",
        summary="Ranks on this machine. Default: one per accelerator; without any, one per core, up to 4.",
    ),
    Setting(
        field="device",
        check=checks.device(*DEVICES),
        read=checks.read_lower,
        argument="device",
        variables=("NOTEBOOK_ACCEL_DEVICE",),
        flags=("--device",),
        value="KIND",
        choices=DEVICES,
        summary="The ranks' devices. Default: a TPU or GPUs if there are any.",
    ),
    Setting(
        field="gpus",
        check=checks.gpus,
        read=checks.read_gpus,
        argument="gpus",
        variables=("NOTEBOOK_ACCEL_GPUS",),
        flags=("--gpus",),
        value="0,2",
        summary="GPUs, one for each rank; ranks share a GPU that is listed twice.",
    ),
    Setting(
        field="mixed_precision",
        check=checks.choice(*PRECISIONS),
        read=checks.read_lower,
        argument="mixed_precision",
        variables=("NOTEBOOK_ACCEL_MIXED_PRECISION", "ACCELERATE_MIXED_PRECISION"),
        flags=("--mixed-precision",),
        value="NAME",
        choices=PRECISIONS,
        summary="The precision of every Accelerator on the ranks. Default: no.",
    ),
    Setting(
        field="gradient_accumulation_steps",
        check=checks.integer(1),
        read=checks.read_number,
        variables=("NOTEBOOK_ACCEL_GRADIENT_ACCUMULATION_STEPS", "ACCELERATE_GRADIENT_ACCUMULATION_STEPS"),
        flags=("--gradient-accumulation-steps", "--gradient-accumulation"),
        value="N",
        summary="Batches over which gradients accumulate. Default: 1.",
    ),
    Setting(
        field="strategy",
        check=checks.choice(*STRATEGIES),
        read=checks.read_lower,
        variables=("NOTEBOOK_ACCEL_STRATEGY",),
        flags=("--strategy",),
        value="NAME",
        choices=STRATEGIES,
        summary="ddp: every rank has the whole model; fsdp: a shard; spmd: one rank for a whole TPU. Default: ddp.",
    ),
    Setting(
        field="env",
        check=checks.environment,
        argument="env",
        flags=("--env",),
        value="NAME=VALUE",
        summary="An environment variable for the ranks; may be given more than once.",
    ),
    Setting(
        field="dynamo_backend",
        check=checks.word,
        read=checks.read_lower,
        variables=("NOTEBOOK_ACCEL_DYNAMO_BACKEND", "ACCELERATE_DYNAMO_BACKEND"),
    ),
    Setting(
        field="debug",
        check=checks.flag,
        read=checks.read_flag,
        variables=("NOTEBOOK_ACCEL_DEBUG", "ACCELERATE_DEBUG_MODE"),
    ),
    Setting(
        field="cluster",
        check=checks.cluster,
        argument="cluster",
        variables=("NOTEBOOK_ACCEL_CLUSTER",),
        flags=("--cluster",),
        value="ADDRESS",
        choices=("auto",),
        summary="Machines of a Ray cluster: auto, ray://HOST:10001 or HOST:6379.",
    ),
    Setting(
        field="num_nodes",
        check=checks.integer(1),
        read=checks.read_number,
        argument="num_nodes",
        variables=("NOTEBOOK_ACCEL_NUM_NODES",),
        flags=("--num-nodes", "--nodes"),
        value="N",
        summary="The number of machines. Default: 1.",
    ),
    Setting(
        field="insecure",
        check=checks.flag,
        read=checks.read_flag,
        argument="insecure",
        variables=("NOTEBOOK_ACCEL_INSECURE",),
    ),
    Setting(
        field="node_rank",
        check=checks.integer(0),
        read=checks.read_number,
        argument="node_rank",
        variables=("NOTEBOOK_ACCEL_NODE_RANK",),
    ),
    Setting(
        field="master_addr",
        check=checks.address,
        argument="master_addr",
        variables=("NOTEBOOK_ACCEL_MASTER_ADDR",),
    ),
    Setting(field="rdzv_backend", check=checks.rendezvous, argument="rdzv_backend"),
    Setting(field="port", check=checks.port, argument="use_port", variables=("NOTEBOOK_ACCEL_PORT",)),
    Setting(field="run_id", check=checks.word, argument="rdzv_id"),
    Setting(field="join_timeout", check=checks.join_timeout, argument="rdzv_conf"),
    Setting(
        field="max_restarts",
        check=checks.integer(0),
        read=checks.read_number,
        argument="max_restarts",
        variables=("NOTEBOOK_ACCEL_MAX_RESTARTS",),
    ),
    Setting(field="heartbeat", check=checks.seconds, argument="monitor_interval"),
    Setting(field="label", check=checks.label, argument="log_line_prefix_template"),
    Setting(
        field="timeout",
        check=checks.seconds,
        read=checks.read_seconds,
        argument="timeout",
        variables=("NOTEBOOK_ACCEL_TIMEOUT",),
    ),
    Setting(
        field="stall_after",
        check=checks.optional_seconds,
        read=checks.read_optional_seconds,
        argument="stall_after",
        variables=("NOTEBOOK_ACCEL_STALL_AFTER",),
    ),
)
BY_ARGUMENT = {setting.argument: setting for setting in SETTINGS if setting.argument}
