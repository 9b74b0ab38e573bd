"""The public names: one row for each module that defines some, in the order of the folders.

The following are generated from the table: `__all__` and the lazy imports of the package, the modules with the names of
Accelerate's (`accelerate_names.py`), and the `.pyi` files that describe both to type checkers (`scripts/generate`).
"""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    """Public names of one module."""

    module: str
    """The module that defines the names, or the folder whose `__init__` re-exports them."""
    accelerate: str
    """The module of Accelerate that has the same names; empty if Accelerate has no equivalent."""
    exported: str
    """The names that the package `notebook_accel` itself exports, space-separated."""
    accelerate_only: str = ""
    """The names that only the module with Accelerate's name exports (and `utils`, if that module is in it)."""

    @property
    def names(self) -> list[str]:
        return f"{self.exported} {self.accelerate_only}".split()


TABLE = (
    Row("errors", "", """CheckpointError ConfigurationError HardwareError JobCancelledError JobLostError LaunchError
        NotebookAccelError PayloadError RankError RankTimeoutError"""),
    Row("errors", "utils.operations", "DistributedOperationException"),
    Row("launch.driver.attach", "", "attach jobs"),
    Row("launch.driver.launcher", "launchers", "debug_launcher notebook_launcher"),
    Row("launch.job.job", "", "Job"),
    Row("launch.rank.report", "", "report"),
    Row("notebook.views", "", "set_view"),
    Row("train.accelerator.accelerator", "accelerator", "Accelerator"),
    Row("train.accelerator.local_sgd", "local_sgd", "LocalSGD"),
    Row("train.checkpoints.contents", "utils.constants", "",
        "OPTIMIZER_NAME RNG_STATE_NAME SCALER_NAME SCHEDULER_NAME"),
    Row("train.checkpoints.serialization", "utils.other", "", "load save"),
    Row("train.checkpoints.weights", "utils.constants", "SAFE_WEIGHTS_NAME",
        """MODEL_NAME SAFE_MODEL_NAME SAFE_WEIGHTS_INDEX_NAME SAFE_WEIGHTS_PATTERN_NAME WEIGHTS_INDEX_NAME WEIGHTS_NAME
        WEIGHTS_PATTERN_NAME"""),
    Row("train.checkpoints.weights", "utils.modeling", "load_checkpoint_in_model"),
    Row("train.data", "data_loader", "SeedableRandomSampler prepare_data_loader skip_first_batches"),
    Row("train.models.batch_size", "utils.memory", "find_executable_batch_size release_memory",
        "clear_device_cache should_reduce_batch_size"),
    Row("train.options.fsdp", "utils.dataclasses", "FullyShardedDataParallelPlugin"),
    Row("train.options.plugins", "utils.dataclasses",
        """AORecipeKwargs AutocastKwargs DDPCommunicationHookType DataLoaderConfiguration DistributedDataParallelKwargs
        DistributedType DynamoBackend GradScalerKwargs GradientAccumulationPlugin InitProcessGroupKwargs LoggerType
        PrecisionType ProfileKwargs ProjectConfiguration RNGType TorchDynamoPlugin TorchTensorParallelPlugin""",
        "KwargsHandler"),
    Row("train.options.plugins", "state", "DistributedType"),
    Row("train.ranks.collectives", "utils.operations",
        "broadcast broadcast_object_list gather gather_object pad_across_processes reduce"),
    Row("train.ranks.gradient_state", "state", "GradientState"),
    Row("train.ranks.logging", "logging", "get_logger"),
    Row("train.ranks.seeds", "utils.random", "set_seed synchronize_rng_states", "synchronize_rng_state"),
    Row("train.ranks.state", "state", "AcceleratorState PartialState"),
    Row("train.steps.optimizer", "optimizer", "AcceleratedOptimizer"),
    Row("train.steps.profiling", "utils.constants", "", "PROFILE_PATTERN_NAME"),
    Row("train.steps.scheduler", "scheduler", "AcceleratedScheduler"),
    Row("train.tensors.tree", "utils.dataclasses", "", "TensorInformation"),
    Row("train.tensors.tree", "utils.operations", "concatenate find_batch_size send_to_device",
        "get_data_structure initialize_tensors listify recursively_apply slice_tensors"),
    Row("train.trackers", "tracking", "GeneralTracker on_main_process"),
)  # fmt: skip


def exported() -> dict[str, str]:
    """The names that the package itself exports, each with the module that it is imported from."""
    return {name: row.module for row in TABLE for name in row.exported.split()}


def accelerate_modules() -> dict[str, dict[str, str]]:
    """For each module of Accelerate, its names, each with the module that it is imported from.

    `utils` has all names of the modules in it.
    """
    found: dict[str, dict[str, str]] = {}
    for row in TABLE:
        folders = {row.accelerate, row.accelerate.partition(".")[0]} - {""}
        for module in sorted(folders):
            found.setdefault(module, {}).update(dict.fromkeys(row.names, row.module))
    return found
