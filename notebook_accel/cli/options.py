"""The options of `notebook-accel launch`, one row each, under the names of Hugging Face's `accelerate launch`.

What a row says is all that is known of an option: the command's parser and help page, the ranks' environment and the
command line of torch's launcher are made from it.
"""

from __future__ import annotations

from dataclasses import dataclass

from notebook_accel.config import PRECISIONS

GENERAL = "General"
HARDWARE = "Hardware"
RESOURCES = "Resources"
DISTRIBUTED = "Distributed"
FSDP = "FSDP"
NOTEBOOK = "Notebooks"
GROUPS = (GENERAL, HARDWARE, RESOURCES, DISTRIBUTED, FSDP, NOTEBOOK)

FLAG = "flag"
TRUTH = "true or false"
COMPILERS = ("no", "eager", "aot_eager", "inductor", "cudagraphs")
COMPILER_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


@dataclass(frozen=True)
class Option:
    """One option."""

    name: str
    """With underscores; dashes do as well."""
    group: str
    help: str
    type: str | type | tuple[str, ...] = str
    """`FLAG` takes no value, `TRUTH` takes true or false; a tuple lists the choices."""
    metavar: str | None = None
    short: str = ""
    variable: str = ""
    """The variable of the ranks' environment that its value goes to."""
    torch: str = ""
    """The option of torch's launcher that its value goes to."""
    only_with: str = ""
    """Another option without which this one has no effect."""
    several: bool = False
    """It may be given more than once."""
    always: tuple[str, ...] = ()
    """A choice of the first FSDP that the second has made: the only values that it can have. Not in the help."""


OPTIONS = (
    Option("config_file", GENERAL, "Settings to use instead of the saved ones.", metavar="FILE"),
    Option("module", GENERAL, "The script is a module, as with `python -m`.", FLAG, short="m"),
    Option("no_python", GENERAL, "The script is a program of its own, run without Python.", FLAG),
    Option("quiet", GENERAL, "Say nothing beyond what the script says.", FLAG, short="q"),
    Option(
        "debug",
        GENERAL,
        "Check before each collective operation that all ranks bring the same shapes. Slower.",
        FLAG,
        variable="ACCELERATE_DEBUG_MODE",
    ),
    Option("cpu", HARDWARE, "Use the CPU, whatever else there is.", FLAG),
    Option("multi_gpu", HARDWARE, "Fail unless there are several GPUs.", FLAG),
    Option(
        "mixed_precision",
        RESOURCES,
        "What the ranks' Accelerators compute in.",
        PRECISIONS,
        variable="ACCELERATE_MIXED_PRECISION",
    ),
    Option(
        "num_processes",
        RESOURCES,
        "Ranks on all machines together. By default one for each GPU, else one for each core up to 4.",
        int,
    ),
    Option("num_machines", RESOURCES, "Machines that take part; run the same command on each.", int),
    Option("num_cpu_threads_per_process", RESOURCES, "CPU threads of each rank (OMP_NUM_THREADS).", int),
    Option("enable_cpu_affinity", RESOURCES, "Keep each rank on the cores that are next to its GPU.", FLAG),
    Option(
        "gradient_accumulation_steps",
        RESOURCES,
        "Batches for each step of the ranks' Accelerators.",
        int,
        variable="ACCELERATE_GRADIENT_ACCUMULATION_STEPS",
    ),
    Option(
        "dynamo_backend",
        RESOURCES,
        "Compile prepared models with this backend of torch.compile.",
        COMPILERS,
        variable="ACCELERATE_DYNAMO_BACKEND",
    ),
    Option(
        "dynamo_mode",
        RESOURCES,
        "How much torch.compile tries.",
        COMPILER_MODES,
        variable="ACCELERATE_DYNAMO_MODE",
        only_with="dynamo_backend",
    ),
    Option(
        "dynamo_use_fullgraph",
        RESOURCES,
        "Fail where a model would be compiled in pieces.",
        FLAG,
        variable="ACCELERATE_DYNAMO_USE_FULLGRAPH",
        only_with="dynamo_backend",
    ),
    Option(
        "dynamo_use_dynamic",
        RESOURCES,
        "Compile for shapes that change.",
        FLAG,
        variable="ACCELERATE_DYNAMO_USE_DYNAMIC",
        only_with="dynamo_backend",
    ),
    Option("gpu_ids", DISTRIBUTED, "GPUs to use here, such as 0,2, as torch numbers them; or all.", metavar="LIST"),
    Option("same_network", DISTRIBUTED, "All machines are on one network. They have to be anyway.", FLAG),
    Option("machine_rank", DISTRIBUTED, "Which of the machines this is, from 0.", int),
    Option("main_process_ip", DISTRIBUTED, "Address of the machine with rank 0.", metavar="HOST"),
    Option("main_process_port", DISTRIBUTED, "Port on which the ranks meet; 0 on one machine: any free one.", int),
    Option("rdzv_backend", DISTRIBUTED, "How machines meet: c10d needs no machine_rank.", ("static", "c10d")),
    Option("rdzv_conf", DISTRIBUTED, "More on how they meet: timeout=900,…", metavar="KEY=VALUE,…", torch="rdzv_conf"),
    Option("max_restarts", DISTRIBUTED, "How often all ranks start again after a failure.", int, torch="max_restarts"),
    Option(
        "monitor_interval",
        DISTRIBUTED,
        "Seconds between two looks at the ranks.",
        float,
        torch="monitor_interval",
    ),
    Option(
        "tee",
        DISTRIBUTED,
        "Label output by rank: 1 stdout, 2 stderr, 3 both; 0:3,1:1 by rank. With --log_dir also keep it.",
        metavar="STREAMS",
        short="t",
        torch="tee",
    ),
    Option("log_dir", DISTRIBUTED, "Folder for what --tee shows.", metavar="FOLDER", torch="log_dir", only_with="tee"),
    Option("role", DISTRIBUTED, "A name of the ranks, in labels and messages.", torch="role"),
    Option("use_fsdp", FSDP, "Shard models over the ranks (FSDP2).", FLAG, variable="ACCELERATE_USE_FSDP"),
    Option("fsdp_version", FSDP, "2 is the only one.", int, only_with="use_fsdp"),
    Option(
        "fsdp_reshard_after_forward",
        FSDP,
        "Whether a layer gives up its parameters after its forward.",
        variable="FSDP_RESHARD_AFTER_FORWARD",
        only_with="use_fsdp",
        metavar="true|false|STRATEGY",
    ),
    Option(
        "fsdp_sharding_strategy",
        FSDP,
        "The first FSDP's word for it: FULL_SHARD, SHARD_GRAD_OP, HYBRID_SHARD.",
        variable="FSDP_SHARDING_STRATEGY",
        only_with="use_fsdp",
        metavar="STRATEGY",
    ),
    Option(
        "fsdp_offload_params",
        FSDP,
        "Whether parameters and optimizer states live in the host's memory.",
        TRUTH,
        variable="FSDP_OFFLOAD_PARAMS",
        only_with="use_fsdp",
    ),
    Option(
        "fsdp_auto_wrap_policy",
        FSDP,
        "How the layers to shard are found.",
        ("TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP"),
        variable="FSDP_AUTO_WRAP_POLICY",
        only_with="use_fsdp",
    ),
    Option(
        "fsdp_transformer_layer_cls_to_wrap",
        FSDP,
        "Classes of these layers, separated by commas.",
        variable="FSDP_TRANSFORMER_CLS_TO_WRAP",
        only_with="use_fsdp",
        metavar="CLASSES",
    ),
    Option(
        "fsdp_min_num_params",
        FSDP,
        "From how many parameters on SIZE_BASED_WRAP wraps.",
        int,
        variable="FSDP_MIN_NUM_PARAMS",
        only_with="use_fsdp",
    ),
    Option(
        "fsdp_state_dict_type",
        FSDP,
        "How checkpoints are written.",
        ("SHARDED_STATE_DICT", "FULL_STATE_DICT"),
        variable="FSDP_STATE_DICT_TYPE",
        only_with="use_fsdp",
    ),
    Option(
        "fsdp_activation_checkpointing",
        FSDP,
        "Whether activations are computed again in the backward.",
        TRUTH,
        variable="FSDP_ACTIVATION_CHECKPOINTING",
        only_with="use_fsdp",
    ),
    *(
        Option(f"fsdp_{name}", FSDP, "", always=values, only_with="use_fsdp")
        for name, values in {
            "backward_prefetch": ("NO_PREFETCH", "BACKWARD_PRE"),
            "forward_prefetch": ("false",),
            "use_orig_params": ("true",),
            "sync_module_states": ("true",),
            "cpu_ram_efficient_loading": ("false",),
            "activation_checkpointing_offload": ("false",),
        }.items()
    ),
    Option("cells", NOTEBOOK, "Run only cells with this tag; may be given again.", metavar="tag:NAME", several=True),
    Option("output", NOTEBOOK, "Save the notebook here, with what rank 0 has put out.", metavar="FILE"),
)
BY_NAME = {option.name: option for option in OPTIONS}
