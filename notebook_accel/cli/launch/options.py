"""The options of `notebook-accel launch`, one row each, under the names of Hugging Face's `accelerate launch`.

The parser and the help page are made from these rows. Options that are settings come from the rows of the settings
(`config/settings.py`, `config/keys.py`), and become a layer (`option_layer.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from notebook_accel.config import kinds
from notebook_accel.config.keys import KEYS
from notebook_accel.config.kinds import Kind
from notebook_accel.config.row import Setting

GENERAL = "General"
HARDWARE = "Hardware"
RESOURCES = "Resources"
DISTRIBUTED = "Distributed"
CHECKPOINTS = "Checkpoints"
FSDP = "FSDP"
PARALLELISM = "Parallelism"
NOTEBOOK = "Notebooks"
GROUPS = (GENERAL, HARDWARE, RESOURCES, DISTRIBUTED, CHECKPOINTS, FSDP, PARALLELISM, NOTEBOOK)


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
