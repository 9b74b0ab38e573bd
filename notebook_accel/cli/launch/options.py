"""The options of `notebook-accel launch`, one row each, under the names of Hugging Face's `accelerate launch`.

The parser and the help page are made from these rows. Options that are settings come from the rows of the settings
(`config/settings.py`, `config/keys.py`). Together they are a layer of settings over the file and the environment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from notebook_accel.config import LaunchConfig, deepspeed, keys, kinds
from notebook_accel.config.keys import KEYS, to_fields
from notebook_accel.config.kinds import Kind
from notebook_accel.config.layers import Layer, merge
from notebook_accel.config.settings import COMMAND_LINE, Setting
from notebook_accel.errors import ConfigurationError

GENERAL = "General"
HARDWARE = "Hardware"
RESOURCES = "Resources"
DISTRIBUTED = "Distributed"
CHECKPOINTS = "Checkpoints"
FSDP = "FSDP"
DEEPSPEED = "DeepSpeed"
PARALLELISM = "Parallelism"
NOTEBOOK = "Notebooks"
GROUPS = (GENERAL, HARDWARE, RESOURCES, DISTRIBUTED, CHECKPOINTS, FSDP, DEEPSPEED, PARALLELISM, NOTEBOOK)


@dataclass(frozen=True)
class Option:
    """One option."""

    name: str
    """Written with underscores; dashes are also accepted."""
    group: str
    help: str
    """Empty, and not on the help page, for what FSDP2 does not have: only values without effect are accepted."""
    kind: Kind = kinds.flag
    is_flag: bool = True
    """Whether it takes no value."""
    short: str = ""
    only_with: str = ""
    """Another option without which this one has no effect."""
    several: bool = False
    """Whether it may be given more than once."""
    key: str = ""
    """The key of the file that it sets; empty if it is not a setting."""


def _with_value(name: str, group: str, help: str, kind: Kind, **more: Any) -> Option:
    return Option(name, group, help, kind, is_flag=False, **more)


def _text(placeholder: str) -> Kind:
    return replace(kinds.text, placeholder=placeholder)


_PAIRS = r"[^=,]+=[^=,]+(,[^=,]+=[^=,]+)*"
_STREAMS = r"[0-3]|(\d:[0-3],)*\d:[0-3]"
# fmt: off
_OWN = (
    _with_value("config_file", GENERAL, "Settings to use instead of the saved ones.", _text("FILE")),
    Option("module", GENERAL, "The script is a module, as with `python -m`.", short="m"),
    Option("no_python", GENERAL, "The script is a program of its own, run without Python."),
    Option("quiet", GENERAL, "Show only the output of the script.", short="q"),
    Option("multi_gpu", HARDWARE, "Fail unless there are several GPUs."),
    _with_value("num_cpu_threads_per_process", RESOURCES, "CPU threads of each rank (OMP_NUM_THREADS).",
                kinds.integer(1)),
    Option("same_network", DISTRIBUTED, "All machines are on one network. This is always required.",
           key="same_network"),
    _with_value("rdzv_conf", DISTRIBUTED, "More settings of the rendezvous, such as timeout=900.",
                kinds.pattern(_PAIRS, "pairs such as timeout=900,join_timeout=600", "KEY=VALUE,…")),
    _with_value("monitor_interval", DISTRIBUTED, "Seconds between two checks of the ranks.", kinds.seconds),
    _with_value("tee", DISTRIBUTED,
                "Label output by rank: 1 stdout, 2 stderr, 3 both; 0:3,1:1 by rank. With --log_dir, also save it.",
                kinds.pattern(_STREAMS, "1 for stdout, 2 for stderr, 3 for both, or by rank as in 0:3,1:1", "STREAMS"),
                short="t"),
    _with_value("log_dir", DISTRIBUTED, "Folder for the output that --tee shows.", _text("FOLDER"), only_with="tee"),
    _with_value("role", DISTRIBUTED, "A name for the ranks, in labels and messages.", _text("NAME")),
    Option("use_fsdp", FSDP, "Shard models over the ranks (FSDP2)."),
    Option("use_deepspeed", DEEPSPEED, "Do with FSDP2 what DeepSpeed's ZeRO would do, as the options below say."),
    *(_with_value(name, DEEPSPEED, help, kind, only_with="use_deepspeed")
      for name, (kind, help) in deepspeed.OPTIONS.items()),
    Option("use_parallelism_config", PARALLELISM, "Arrange the ranks in several dimensions, of the sizes below."),
    _with_value("cells", NOTEBOOK, "Run only cells with this tag. Repeat it for several tags.", _text("tag:NAME"),
                several=True),
    _with_value("output", NOTEBOOK, "Save the notebook here, with the output of rank 0.", _text("FILE")),
)
# fmt: on
_ONLY_WITH = {"fsdp": "use_fsdp", "dynamo": "dynamo_backend", "parallelism": "use_parallelism_config"}


def _of_setting(row: Setting) -> Option:
    return Option(
        row.option or row.key,
        row.launch,
        row.help,
        row.kind,
        is_flag=row.kind is kinds.flag and row.field != "fsdp",  # as in Accelerate
        only_with=_ONLY_WITH.get(row.field, ""),
        key=row.key,
    )


OPTIONS = (*_OWN, *(_of_setting(row) for row in KEYS.values() if row.launch))


_EXCLUDE = (
    ("cpu", "multi_gpu"),
    ("use_deepspeed", "use_fsdp"),
    ("cpu", "gpu_ids"),
    ("module", "no_python"),
    ("cells", "module"),
    ("cells", "no_python"),
    ("output", "module"),
    ("output", "no_python"),
)


def merged(options: Mapping[str, Any], below: Sequence[Layer]) -> LaunchConfig:
    """The settings of a launch.

    Args:
        options: The given options of the command line, by name.
        below: The layers of the file and the environment.

    Raises:
        ConfigurationError: Options that exclude each other, have no effect, or have a value that makes no sense.
    """
    for one, other in _EXCLUDE:
        if options.get(one) and options.get(other):
            raise ConfigurationError(f"--{one} and --{other} exclude each other: leave one of them out")
    before = merge(below)
    config = merge([*below, _layer(options, before)])
    has = {**options, "use_fsdp": config.strategy == "fsdp", "dynamo_backend": config.dynamo_backend != "no"}
    has["use_parallelism_config"] = options.get("use_parallelism_config") or before.parallelism
    for option in OPTIONS:
        if option.name in options and option.only_with and not has.get(option.only_with):
            raise ConfigurationError(f"--{option.name} has no effect without --{option.only_with}")
    if options.get("use_parallelism_config") and not config.parallelism:
        raise ConfigurationError(
            "--use_parallelism_config has no effect without a size, such as --parallelism_config_tp_size 2"
        )
    return config


def _layer(options: Mapping[str, Any], below: LaunchConfig) -> Layer:
    """The options that are settings, as a layer."""
    found: dict[str, Any] = {}
    for option in OPTIONS:
        if option.name in options:
            name, value = f"--{option.name}", options[option.name]
            if option.key:
                found[option.key] = keys.check(option.key, value, name)
            else:
                option.kind.parse(name, value)
    keys.refuse_fsdp1_keys(found)
    if options.get("use_fsdp"):
        found["distributed_type"] = "FSDP"
    if options.get("use_deepspeed"):
        names = {*deepspeed.OPTIONS, "gradient_clipping", "gradient_accumulation_steps"}
        section = {name: options[name] for name in options if name in names}
        found["distributed_type"] = "DEEPSPEED"
        found["deepspeed_config"] = keys.check("deepspeed_config", section, "--use_deepspeed")
    chosen = (found.get("gpu_ids") or "").split(",")
    if len(set(chosen)) < len(chosen):
        raise ConfigurationError(f"--gpu_ids {options['gpu_ids']}: write numbers such as 0,2, each once, or all")
    size = _local_size(found, below)
    fields = to_fields(found)
    values = {name: value for name, (value, _) in fields.items()}
    locations = {name: f"--{_OPTION_BY_KEY[key]}" for name, (_, key) in fields.items()}
    if size is not None:
        values["num_processes"] = size
        locations["num_processes"] = "--num_processes" if "num_processes" in options else "--num_machines"
    if options.get("multi_gpu") or options.get("gpu_ids") == "all":
        values["device"] = "cuda"
        locations["device"] = "--multi_gpu" if options.get("multi_gpu") else "--gpu_ids"
    if options.get("gpu_ids") == "all":
        values["gpus"] = None
    if "num_machines" in options:
        values["cluster"] = ""  # the machines are this one and others, where the user runs the same command
    if "num_cpu_threads_per_process" in options:
        values["env"] = {"OMP_NUM_THREADS": str(options["num_cpu_threads_per_process"])}
    return Layer(COMMAND_LINE, values, locations)


_OPTION_BY_KEY = {
    **{option.key: option.name for option in OPTIONS},
    "distributed_type": "use_fsdp",
    "fsdp_config": "use_fsdp",
    "deepspeed_config": "use_deepspeed",
    "dynamo_config": "dynamo_backend",
    "parallelism_config": "use_parallelism_config",
}


def _local_size(found: dict[str, Any], below: LaunchConfig) -> int | None:
    """The ranks of this node. The option and the file count those of all nodes, which the command line may change."""
    total, nodes = found.pop("num_processes", None), found.get("num_machines", below.num_nodes)
    if total is None and below.num_processes is not None and "num_machines" in found:
        total = below.num_processes * (1 if below.cluster else below.num_nodes)
    if total is None:
        return None
    if total % nodes:
        raise ConfigurationError(
            f"--num_processes {total} counts the ranks of all machines, but {total} is not a multiple of "
            f"--num_machines {nodes}"
        )
    return int(total // nodes)
