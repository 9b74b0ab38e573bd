"""The options of `notebook-accel launch`, one row each, under the names of Hugging Face's `accelerate launch`.

Only the row describes an option: the parser, the help page and the command line of torch's launcher are made from it.
Options that are settings, under the names that they have in the file, become a layer (`option_layer.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

from notebook_accel.config import PRECISIONS
from notebook_accel.config.keys import COMPILER_MODES, COMPILERS, RENDEZVOUS_BACKENDS, STATE_DICTS, WRAPPINGS

GENERAL = "General"
HARDWARE = "Hardware"
RESOURCES = "Resources"
DISTRIBUTED = "Distributed"
FSDP = "FSDP"
NOTEBOOK = "Notebooks"
GROUPS = (GENERAL, HARDWARE, RESOURCES, DISTRIBUTED, FSDP, NOTEBOOK)

FLAG = "flag"
TRUTH = "true or false"


@dataclass(frozen=True)
class Option:
    """One option."""

    name: str
    """Written with underscores; dashes are also accepted."""
    group: str
    help: str
    type: str | type | tuple[str, ...] = str
    """`FLAG` takes no value, `TRUTH` takes true or false; a tuple lists the choices."""
    metavar: str | None = None
    short: str = ""
    torch: str = ""
    """The option of torch's launcher that gets its value."""
    only_with: str = ""
    """Another option without which this one has no effect."""
    several: bool = False
    """Whether it may be given more than once."""
    moot: bool = False
    """A choice that FSDP2 does not have. Only a value without effect is accepted; the help does not list it."""


def _fsdp(
    name: str,
    help: str = "",
    type: str | type | tuple[str, ...] = str,
    metavar: str | None = None,
    *,
    moot: bool = False,
) -> Option:
    """An option for sharding."""
    return Option(name, FSDP, help, type, metavar=metavar, only_with="use_fsdp", moot=moot)


def _dynamo(name: str, help: str, type: str | tuple[str, ...]) -> Option:
    """An option for compiling."""
    return Option(name, RESOURCES, help, type, only_with="dynamo_backend")


OPTIONS = (
    Option("config_file", GENERAL, "Settings to use instead of the saved ones.", metavar="FILE"),
    Option("module", GENERAL, "The script is a module, as with `python -m`.", FLAG, short="m"),
    Option("no_python", GENERAL, "The script is a program of its own, run without Python.", FLAG),
    Option("quiet", GENERAL, "Show only the output of the script.", FLAG, short="q"),
    Option(
        "debug",
        GENERAL,
        "Check before each collective that all ranks have the same shapes. Slower.",
        FLAG,
    ),
    Option("cpu", HARDWARE, "Use the CPU, even if there are accelerators.", FLAG),
    Option("multi_gpu", HARDWARE, "Fail unless there are several GPUs.", FLAG),
    Option(
        "mixed_precision",
        RESOURCES,
        "The precision in which the ranks' Accelerators compute.",
        PRECISIONS,
    ),
    Option(
        "num_processes",
        RESOURCES,
        "Ranks on all machines together. By default one per GPU; without GPUs, one per core, up to 4.",
        int,
    ),
    Option("num_machines", RESOURCES, "Machines that take part; run the same command on each.", int),
    Option("num_cpu_threads_per_process", RESOURCES, "CPU threads of each rank (OMP_NUM_THREADS).", int),
    Option("enable_cpu_affinity", RESOURCES, "Bind each rank to the cores close to its GPU.", FLAG),
    Option(
        "gradient_accumulation_steps",
        RESOURCES,
        "Batches per optimizer step of the ranks' Accelerators.",
        int,
    ),
    Option(
        "dynamo_backend",
        RESOURCES,
        "Compile prepared models with this backend of torch.compile.",
        COMPILERS,
    ),
    _dynamo("dynamo_mode", "The mode of torch.compile.", COMPILER_MODES),
    _dynamo("dynamo_use_fullgraph", "Fail if a model can't be compiled as a single graph.", FLAG),
    _dynamo("dynamo_use_dynamic", "Compile for dynamic shapes.", FLAG),
    Option("gpu_ids", DISTRIBUTED, "GPUs to use here, such as 0,2, as torch numbers them; or all.", metavar="LIST"),
    Option("same_network", DISTRIBUTED, "All machines are on one network. This is always required.", FLAG),
    Option("machine_rank", DISTRIBUTED, "Which of the machines this is, from 0.", int),
    Option("main_process_ip", DISTRIBUTED, "Address of the machine with rank 0.", metavar="HOST"),
    Option("main_process_port", DISTRIBUTED, "Port of the rendezvous; on one machine, 0 for any free port.", int),
    Option(
        "rdzv_backend", DISTRIBUTED, "Rendezvous of several machines; c10d needs no machine_rank.", RENDEZVOUS_BACKENDS
    ),
    Option("rdzv_conf", DISTRIBUTED, "More settings of the rendezvous: timeout=900,…", metavar="KEY=VALUE,…"),
    Option(
        "max_restarts",
        DISTRIBUTED,
        "How many times all ranks are restarted after a failure.",
        int,
        torch="max_restarts",
    ),
    Option(
        "monitor_interval",
        DISTRIBUTED,
        "Seconds between two checks of the ranks.",
        float,
        torch="monitor_interval",
    ),
    Option(
        "tee",
        DISTRIBUTED,
        "Label output by rank: 1 stdout, 2 stderr, 3 both; 0:3,1:1 by rank. With --log_dir, also save it.",
        metavar="STREAMS",
        short="t",
        torch="tee",
    ),
    Option(
        "log_dir",
        DISTRIBUTED,
        "Folder for the output that --tee shows.",
        metavar="FOLDER",
        torch="log_dir",
        only_with="tee",
    ),
    Option("role", DISTRIBUTED, "A name for the ranks, in labels and messages.", torch="role"),
    Option("use_fsdp", FSDP, "Shard models over the ranks (FSDP2).", FLAG),
    _fsdp("fsdp_version", "Only 2 is supported.", int),
    _fsdp(
        "fsdp_reshard_after_forward",
        "Whether to free a layer's parameters after its forward pass.",
        metavar="true|false|STRATEGY",
    ),
    _fsdp(
        "fsdp_sharding_strategy",
        "The name in FSDP1: FULL_SHARD, SHARD_GRAD_OP, HYBRID_SHARD.",
        metavar="STRATEGY",
    ),
    _fsdp("fsdp_offload_params", "Whether to keep parameters and optimizer states in the host's memory.", TRUTH),
    _fsdp("fsdp_auto_wrap_policy", "How to find the layers to shard.", WRAPPINGS),
    _fsdp("fsdp_transformer_layer_cls_to_wrap", "Classes of these layers, separated by commas.", metavar="CLASSES"),
    _fsdp("fsdp_min_num_params", "Minimum number of parameters for SIZE_BASED_WRAP.", int),
    _fsdp("fsdp_state_dict_type", "How checkpoints are written.", STATE_DICTS),
    _fsdp("fsdp_activation_checkpointing", "Whether to recompute activations in the backward pass.", TRUTH),
    _fsdp("fsdp_backward_prefetch", moot=True),
    _fsdp("fsdp_forward_prefetch", moot=True),
    _fsdp("fsdp_use_orig_params", moot=True),
    _fsdp("fsdp_sync_module_states", moot=True),
    _fsdp("fsdp_cpu_ram_efficient_loading", moot=True),
    _fsdp("fsdp_activation_checkpointing_offload", moot=True),
    Option(
        "cells",
        NOTEBOOK,
        "Run only cells with this tag; may be given more than once.",
        metavar="tag:NAME",
        several=True,
    ),
    Option("output", NOTEBOOK, "Save the notebook here, with the output of rank 0.", metavar="FILE"),
)
BY_NAME = {option.name: option for option in OPTIONS}
