"""What to use instead of options of `accelerate launch` that are not supported, by name or by prefix of the name."""

from __future__ import annotations

_SHARDING = "models are sharded with torch's FSDP2: use --use_fsdp and its --fsdp_… options"
_TPU = "this command does not support TPUs: use notebook_launcher in a notebook, or torch_xla's own launcher"
_FP8 = "fp8 uses torchao: use --mixed_precision fp8, and configure it in the script with AORecipeKwargs"
_CLOUD = "this command does not start cloud machines: run it on the machines themselves"

_BY_NAME = {
    "tpu": _TPU,
    "vm": _TPU,
    "env": "set the variable before the command: NAME=value notebook-accel launch …",
    "downcast_bf16": _TPU,
    "main_training_function": "the script runs as a whole, as with python: call the function in the script",
    "gradient_clipping": "clip gradients in the script: accelerator.clip_grad_norm_(model.parameters(), 1.0)",
    "mpirun_hostfile": "MPI is not needed: use --num_machines, --machine_rank and --main_process_ip on each machine",
    "nproc_per_node": "use --num_processes, the number of ranks on all machines together",
    "nnodes": "use --num_machines",
    "master_port": "use --main_process_port",
    "rdzv_endpoint": "use --main_process_ip and --main_process_port",
    "standalone": "leave it out: ranks on a single machine use a free port anyway",
}
_BY_PREFIX = {
    "use_deepspeed": _SHARDING,
    "deepspeed": _SHARDING,
    "zero": _SHARDING,
    "offload_": "use --use_fsdp --fsdp_offload_params true",
    "use_megatron": _SHARDING,
    "megatron_lm": _SHARDING,
    "parallelism_config_cp_backend": "torch's context parallelism is the only one: leave it out",
    "parallelism_config_sp": "sequence parallelism needs DeepSpeed: use --parallelism_config_cp_size",
    "tpu_": _TPU,
    "no_tpu": _TPU,
    "fp8_": _FP8,
    "aws_": _CLOUD,
}


def alternative(option: str) -> str | None:
    """What to use instead of an option as the user wrote it; `None` if Accelerate does not have the option either."""
    name = option.lstrip("-").partition("=")[0].replace("-", "_")
    if name in _BY_NAME:
        return _BY_NAME[name]
    return next((text for prefix, text in _BY_PREFIX.items() if name.startswith(prefix)), None)
