"""`Setting`, the row of a setting, and `LaunchConfig`, the settings of one launch.

Each field has its type, its row, and its default in one place.
"""

# No `from __future__ import annotations`: `SETTINGS` is made from the annotations.

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from typing import Annotated, Any

from notebook_accel.config import kinds
from notebook_accel.config.kinds import JOIN_TIMEOUT, Kind

PRECISIONS = ("no", "fp16", "bf16", "fp8")
DEVICES = ("cpu", "cuda", "mps", "tpu")
STRATEGIES = ("ddp", "fsdp", "spmd")
COMPILERS = ("no", "eager", "aot_eager", "inductor", "cudagraphs")
"""Backends of torch.compile that every installation has; others are accepted too."""
DEFAULT_PORT = 29500
COMMAND_LINE = "command line"
"""The name of the layer of settings that the options of `notebook-accel launch` make."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class Setting:
    """One setting, with its names for users."""

    kind: Kind
    """How its value is read, checked and written."""
    help: str = ""
    """What it does, for help pages."""
    _: KW_ONLY
    field: str = ""
    """Its field of `LaunchConfig`, which the rows there need not repeat."""
    default: Any = None
    """The default of that field."""
    argument: str = ""
    """Its name among the parameters of `notebook_launcher`."""
    none_is_given: bool = False
    """Whether a `None` as that argument is a value to check, because the parameter has another default."""
    variable: str = ""
    """The environment variable that users set."""
    rank_variable: str = ""
    """Accelerate's variable, which users may set too, and which each rank is given."""
    of_cluster: bool = False
    """Whether only launches on a cluster have it, so that `notebook-accel launch` says that it passes it over."""
    of_job: bool = False
    """Whether only jobs have it, so that `notebook-accel launch` says so if it starts none."""
    magic: tuple[str, ...] = ()
    """Its option of `%accelerate`, with all its spellings, the usual one last."""
    key: str = ""
    """Its key in the configuration file, which is Accelerate's if Accelerate has it."""
    unset: tuple[Any, ...] = ()
    """Values of the key that mean the same as none, besides an empty one."""
    config: bool = False
    """Whether `notebook-accel config` has an option for the key, and shows it even if it is not set."""
    launch: str = ""
    """The heading for the key's option on the help page of `notebook-accel launch`; empty: there is none."""
    option: str = ""
    """The name of that option, if it is not the key's."""

    def parse_key(self, name: str, value: Any) -> Any:
        """The value of its key, in a file or on a command line, checked; `None` if it says nothing."""
        value = self.kind.convert(value)
        return None if value is None or is_any(value, self.unset) else self.kind.check(name, value)


def is_any(value: Any, of: tuple[Any, ...]) -> bool:
    """Whether the value is one of these, with 0 and `False` told apart."""
    return any(value == each and type(value) is type(each) for each in of)


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
    """How to start the ranks of one launch.

    A field with a `Setting` can be set by users, in each interface that the row names: a line for the call, one for the
    environment, one for `%accelerate`, and one for the file and the command line.
    """

    # fmt: off

    num_processes: Annotated[int | None, Setting(
        kinds.integer(1),
        "The number of ranks: in a notebook without a cluster, on this machine; otherwise, on all machines together. "
        "Default: one per accelerator, or, without any, one per core, up to 4.",
        argument="num_processes",
        variable="NOTEBOOK_ACCEL_NUM_PROCESSES",
        magic=("-n", "--num-processes"),
        key="num_processes", unset=(-1,), config=True, launch="Resources",
    )] = None
    """Ranks on this machine; with a cluster, on all of its nodes."""
    device: Annotated[str | None, Setting(
        kinds.device(*DEVICES), "What the ranks run on. Default: a TPU or GPUs if there are any.",
        argument="device",
        variable="NOTEBOOK_ACCEL_DEVICE",
        magic=("--device",),
        key="device",
    )] = None
    gpus: Annotated[tuple[int, ...] | None, Setting(
        kinds.gpus, "The GPUs, one for each rank. Ranks share a GPU that is listed twice.",
        argument="gpus",
        variable="NOTEBOOK_ACCEL_GPUS",
        magic=("--gpus",),
    )] = None
    """Indices in the driver's order, after `CUDA_VISIBLE_DEVICES`."""
    mixed_precision: Annotated[str, Setting(
        kinds.choice(*PRECISIONS), "The precision of every Accelerator on the ranks. Default: no.",
        argument="mixed_precision", none_is_given=True,
        variable="NOTEBOOK_ACCEL_MIXED_PRECISION", rank_variable="ACCELERATE_MIXED_PRECISION",
        magic=("--mixed-precision",),
        key="mixed_precision", config=True, launch="Resources",
    )] = "no"
    gradient_accumulation_steps: Annotated[int, Setting(
        kinds.integer(1), "Batches over which the ranks' Accelerators accumulate gradients. Default: 1.",
        variable="NOTEBOOK_ACCEL_GRADIENT_ACCUMULATION_STEPS", rank_variable="ACCELERATE_GRADIENT_ACCUMULATION_STEPS",
        magic=("--gradient-accumulation-steps", "--gradient-accumulation"),
        key="gradient_accumulation_steps", config=True, launch="Resources",
    )] = 1
    gradient_clipping: Annotated[float | None, Setting(
        kinds.norm, "The greatest norm of the gradients, to which the ranks' Accelerators clip them at each step.",
        variable="NOTEBOOK_ACCEL_GRADIENT_CLIPPING", rank_variable="ACCELERATE_GRADIENT_CLIPPING",
        magic=("--gradient-clipping",),
        key="gradient_clipping", unset=(0, 0.0, "auto"), launch="Resources",
    )] = None
    """`None`: they are not clipped, except by the user's code."""
    strategy: Annotated[str, Setting(
        kinds.choice(*STRATEGIES),
        "ddp: every rank has the whole model; fsdp: a shard; spmd: one rank for a whole TPU. Default: ddp.",
        variable="NOTEBOOK_ACCEL_STRATEGY",
        magic=("--strategy",),
    )] = "ddp"
    """How an `Accelerator` on the ranks distributes models if it is not given a plugin."""
    fsdp: Mapping[str, Any] = field(default_factory=dict)
    """The settings of FSDP, by the keys of Accelerate's file, such as `fsdp_offload_params`. Their rows: `keys.py`."""
    dynamo_backend: Annotated[str, Setting(
        kinds.compiler(*COMPILERS),
        "The backend of torch.compile that compiles prepared models, such as inductor. Default: no.",
        variable="NOTEBOOK_ACCEL_DYNAMO_BACKEND", rank_variable="ACCELERATE_DYNAMO_BACKEND",
        magic=("--dynamo-backend",),
        key="dynamo_backend", config=True, launch="Resources",
    )] = "no"
    dynamo: Mapping[str, Any] = field(default_factory=dict)
    """The settings for compiling them, by the keys of Accelerate's file, such as `dynamo_mode`."""
    parallelism: Mapping[str, Any] = field(default_factory=dict)
    """The dimensions of an Accelerator's `ParallelismConfig`, such as `parallelism_config_tp_size`."""
    env: Annotated[Mapping[str, str], Setting(
        kinds.environment, "An environment variable for the ranks. Repeat it for several variables.",
        argument="env",
        magic=("--env",),
        key="env",
    )] = field(default_factory=dict)
    debug: Annotated[bool, Setting(
        kinds.flag, "Check before each collective operation that all ranks call it the same way. Slows training down.",
        variable="NOTEBOOK_ACCEL_DEBUG", rank_variable="ACCELERATE_DEBUG_MODE",
        magic=("--debug",),
        key="debug", config=True, launch="General",
    )] = False
    cpu_affinity: Annotated[bool, Setting(
        kinds.flag, "Bind each rank to the cores close to its GPU, if torch's launcher starts it.",
        key="enable_cpu_affinity", unset=(False,), launch="Resources",
    )] = False
    cluster: Annotated[str, Setting(
        kinds.cluster,
        "Where a notebook's launches get their machines: auto, ray://HOST:10001, HOST:6379, slurm, or "
        "ssh://HOST1,HOST2.",
        argument="cluster",
        variable="NOTEBOOK_ACCEL_CLUSTER",
        magic=("--cluster",),
        key="cluster", unset=("",), config=True,
    )] = ""
    """Empty for this machine, or for nodes that each make the same call. With a cluster, `num_processes` counts the
    ranks on all nodes."""
    insecure: Annotated[bool, Setting(
        kinds.flag, "Whether to accept a cluster that requires no token.",
        argument="insecure", of_cluster=True,
        variable="NOTEBOOK_ACCEL_INSECURE",
        key="insecure", unset=(False,),
    )] = False
    num_nodes: Annotated[int, Setting(
        kinds.integer(1),
        "The number of machines. Without a cluster, make the same call or run the same command on each. Default: 1.",
        argument="num_nodes", none_is_given=True,
        variable="NOTEBOOK_ACCEL_NUM_NODES",
        magic=("--num-nodes", "--nodes"),
        key="num_machines", config=True, launch="Resources",
    )] = 1
    node_rank: Annotated[int, Setting(
        kinds.integer(0), "The number of this machine, counted from 0.",
        argument="node_rank", none_is_given=True,
        variable="NOTEBOOK_ACCEL_NODE_RANK",
        key="machine_rank", config=True, launch="Distributed",
    )] = 0
    master_addr: Annotated[str, Setting(
        kinds.address, "The address of the machine with rank 0.",
        argument="master_addr", none_is_given=True,
        variable="NOTEBOOK_ACCEL_MASTER_ADDR",
        key="main_process_ip", unset=("",), config=True, launch="Distributed",
    )] = "127.0.0.1"
    port: Annotated[int, Setting(
        kinds.port, "The port of the rendezvous on that machine; on a single machine, 0 for any free port.",
        argument="use_port", none_is_given=True,
        variable="NOTEBOOK_ACCEL_PORT",
        key="main_process_port", unset=("",), config=True, launch="Distributed",
    )] = DEFAULT_PORT
    """On a single node, 29500 means any free port."""
    rdzv_backend: Annotated[str, Setting(
        kinds.rendezvous, "The rendezvous of several machines; c10d, only on the command line, needs no machine_rank.",
        argument="rdzv_backend",
        key="rdzv_backend", launch="Distributed",
    )] = "static"
    run_id: Annotated[str, Setting(kinds.text, argument="rdzv_id")] = "none"
    """Only nodes with the same ID join each other."""
    join_timeout: Annotated[float, Setting(kinds.join_timeout, argument="rdzv_conf")] = JOIN_TIMEOUT
    """Seconds to wait for the other nodes."""
    max_restarts: Annotated[int, Setting(
        kinds.integer(0), "How many times all ranks are restarted after a failure.",
        argument="max_restarts", none_is_given=True,
        variable="NOTEBOOK_ACCEL_MAX_RESTARTS",
        key="max_restarts", launch="Distributed",
    )] = 0
    min_processes: Annotated[int | None, Setting(
        kinds.integer(1),
        "The fewest ranks that a restart may continue with if devices, memory, or machines are lost. Default: all.",
        argument="min_processes",
        variable="NOTEBOOK_ACCEL_MIN_PROCESSES",
        magic=("--min-processes",),
        key="min_processes", launch="Distributed",
    )] = None
    """Counts ranks as `num_processes` does."""
    heartbeat: Annotated[float, Setting(kinds.seconds, argument="monitor_interval")] = 0.1
    """Seconds between two heartbeats of a rank."""
    title: Annotated[str, Setting(kinds.title, argument="name")] = ""
    """What the user calls the job; empty: it is called as its function."""
    notes: Annotated[str, Setting(kinds.notes, argument="notes")] = ""
    """What the user wants to know of it later."""
    label: Annotated[str | None, Setting(kinds.label, argument="log_line_prefix_template")] = None
    """A template for the label of output lines."""
    checkpoint_dir: Annotated[str, Setting(
        kinds.folder, "The folder for checkpoints, from which the same launch continues. Needs a loop over epochs().",
        argument="checkpoint",
        variable="NOTEBOOK_ACCEL_CHECKPOINT_DIR", rank_variable="NOTEBOOK_ACCEL_CHECKPOINT_DIR",
        magic=("--checkpoint-dir",),
        key="checkpoint_dir", unset=("",), launch="Checkpoints",
    )] = ""
    """Empty: none are saved."""
    checkpoint_every: Annotated[int | str, Setting(
        kinds.interval, "The interval between checkpoints: optimizer steps, or a time. Default: 5 min.",
        argument="every",
        variable="NOTEBOOK_ACCEL_CHECKPOINT_EVERY", rank_variable="NOTEBOOK_ACCEL_CHECKPOINT_EVERY",
        magic=("--checkpoint-every",),
        key="checkpoint_every", launch="Checkpoints",
    )] = "5 min"
    checkpoint_keep: Annotated[int, Setting(
        kinds.integer(1), "How many of the newest checkpoints to keep. Default: 3.",
        argument="keep",
        variable="NOTEBOOK_ACCEL_CHECKPOINT_KEEP", rank_variable="NOTEBOOK_ACCEL_CHECKPOINT_KEEP",
        magic=("--checkpoint-keep",),
        key="checkpoint_keep", launch="Checkpoints",
    )] = 3
    checkpoint_resume: Annotated[bool, Setting(
        kinds.flag, "Whether to continue from checkpoints in the folder. If false, they are an error. Default: true.",
        argument="resume",
        variable="NOTEBOOK_ACCEL_CHECKPOINT_RESUME", rank_variable="NOTEBOOK_ACCEL_CHECKPOINT_RESUME",
        magic=("--checkpoint-resume",),
        key="checkpoint_resume", launch="Checkpoints",
    )] = True
    time_limit: Annotated[str, Setting(
        kinds.duration, "The time, such as 8h30m, after which training saves a checkpoint and ends.",
        argument="time_limit",
        variable="NOTEBOOK_ACCEL_TIME_LIMIT",
        magic=("--time-limit",),
        key="time_limit", unset=("",), launch="Checkpoints",
    )] = ""
    """Empty: there is no limit."""
    timeout: Annotated[float | None, Setting(
        kinds.seconds, "Seconds after which the ranks are ended, and the error shows where each of them was.",
        argument="timeout", of_job=True,
        variable="NOTEBOOK_ACCEL_TIMEOUT",
        key="timeout", launch="Resources",
    )] = None
    """Seconds that the whole launch may take."""
    stall_after: Annotated[float | None, Setting(
        kinds.optional_seconds,
        argument="stall_after", none_is_given=True, of_job=True,
        variable="NOTEBOOK_ACCEL_STALL_AFTER",
    )] = 60.0
    """Seconds without progress, while ranks wait for others, before a stall is reported; `None`: never."""
    notify: Annotated[tuple[Any, ...], Setting(
        kinds.targets,
        argument="notify", of_job=True,
        variable="NOTEBOOK_ACCEL_NOTIFY",
    )] = ()
    """Where to send notifications of the job: texts as in `addresses.py`, and functions."""
    co2_per_kwh: Annotated[float | None, Setting(
        kinds.grams, "The grams of CO2 that a kilowatt-hour causes where the ranks run, for the CO2 of a job.",
        of_job=True,
        variable="NOTEBOOK_ACCEL_CO2_PER_KWH",
        magic=("--co2-per-kwh",),
        key="co2_per_kwh", launch="General",
    )] = None
    wait: Annotated[str, Setting(kinds.choice("no", "free"), argument="wait")] = "no"
    """`free`: the ranks start once their GPUs, or as many as they need, are free."""
    # fmt: on
    notices: tuple[str, ...] = field(default=(), compare=False)
    """Lines to show to the user at launch."""
    sources: Mapping[str, Source] = field(default_factory=dict, compare=False, repr=False)
    """Where each value came from, by field; fields that are missing here have their defaults."""
    on_command_line: bool = field(default=False, compare=False)
    """Whether the launch is one of `notebook-accel launch`, so that messages name its options."""
    in_magic: bool = field(default=False, compare=False)
    """Whether the ranks are those of `%%accelerate`, so that messages name the options of magics."""

    def cite(self, name: str) -> str:
        """Where a value came from, in brackets, for messages; empty for an argument of the call."""
        source = self.sources.get(name)
        return "" if source is None or source.layer == "call" else f" (from {source})"

    def is_option(self, name: str) -> bool:
        """Whether a value is that of an option of `notebook-accel launch`."""
        return name in self.sources and self.sources[name].layer == COMMAND_LINE

    def spell(self, name: str, value: Any = None) -> str:
        """How the user writes a setting in this kind of launch: its name and value, or without one only the name."""
        row = SETTINGS[name]
        if self.in_magic and row.magic:
            option = row.magic[0] if name == "num_processes" else f"%accelerate {row.magic[-1]}"
            if value is None:
                return option
            return f"{option} {','.join(map(str, value)) if isinstance(value, list) else value}"
        if not self.on_command_line:
            return row.argument if value is None else f"{row.argument}={value!r}"
        if name == "device":
            return f"--{value}"
        if name == "num_processes" and value is not None:
            value *= self.num_nodes  # the option counts the ranks on all nodes
        return f"--{row.key}" if value is None else f"--{row.key} {value}"


_DEFAULTS = LaunchConfig()
SETTINGS: dict[str, Setting] = {
    each.name: replace(row, field=each.name, default=getattr(_DEFAULTS, each.name))
    for each in fields(LaunchConfig)
    for row in getattr(each.type, "__metadata__", ())
}
"""The row of each setting, by field of `LaunchConfig`."""
