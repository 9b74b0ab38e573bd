from collections.abc import Callable

import pytest

from notebook_accel import Accelerator, ParallelismConfig, TorchTensorParallelPlugin
from notebook_accel.errors import ConfigurationError
from notebook_accel.utils import TorchContextParallelConfig, TorchTensorParallelConfig


def test_the_names_of_dimensions_are_accelerates() -> None:
    from accelerate import ParallelismConfig as Accelerates

    for sizes in ({}, {"dp_replicate_size": 2, "dp_shard_size": 2}, {"dp_shard_size": 2, "cp_size": 4}):
        ours, theirs = ParallelismConfig(**sizes), Accelerates(**sizes)
        for name in (
            "dp_dim_names", "non_dp_dim_names", "dp_shard_cp_dim_names", "dp_cp_dim_names", "fsdp_dim_names",
            "active_mesh_dims", "total_size", "data_parallel_size", "non_data_parallel_size", "dp_replicate_enabled",
            "dp_shard_enabled", "tp_enabled", "cp_enabled", "sp_enabled", "dp_shard_size", "cp_backend",
        ):  # fmt: skip
            assert getattr(ours, name) == getattr(theirs, name), name


def test_sizes_that_are_left_out_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARALLELISM_CONFIG_DP_SHARD_SIZE", "4")
    monkeypatch.setenv("PARALLELISM_CONFIG_CP_SIZE", "2")
    monkeypatch.setenv("PARALLELISM_CONFIG_CP_COMM_STRATEGY", "alltoall")
    config = ParallelismConfig(dp_shard_size=2)
    assert (config.dp_shard_size, config.cp_size, config.total_size) == (2, 2, 4)
    assert config.cp_handler == TorchContextParallelConfig("alltoall")
    for says_yes in ("true", "1"):
        monkeypatch.setenv("ACCELERATE_USE_PARALLELISM_CONFIG", says_yes)
        with pytest.raises(ConfigurationError, match="for 8 ranks"):
            Accelerator()
    monkeypatch.setenv("PARALLELISM_CONFIG_CP_SIZE", "two")
    with pytest.raises(ConfigurationError, match="PARALLELISM_CONFIG_CP_SIZE=two: must be a whole number"):
        ParallelismConfig()


def test_one_rank_needs_no_dimensions() -> None:
    accelerator = Accelerator(parallelism_config=ParallelismConfig())
    assert accelerator.torch_device_mesh is None
    assert accelerator.tensor_parallel_rank == 0
    assert accelerator.parallelism_config == ParallelismConfig()


REFUSED: dict[str, Callable[[], object]] = {
    "dp_shard_size=0: must be a whole number of ranks": lambda: ParallelismConfig(dp_shard_size=0),
    "needs DeepSpeed": lambda: ParallelismConfig(sp_size=2),
    "must be torch": lambda: ParallelismConfig(cp_backend="other"),
    "tp_handler has no effect": lambda: ParallelismConfig(tp_handler=TorchTensorParallelConfig()),
    "must be allgather or alltoall": lambda: TorchContextParallelConfig("ring"),
    "enable_async_tp=True": lambda: TorchTensorParallelConfig(enable_async_tp=True),
    "for 2 ranks": lambda: Accelerator(parallelism_config=ParallelismConfig(tp_size=2)),
    "leave the plugin out": lambda: Accelerator(
        parallelism_config=ParallelismConfig(tp_size=2), torch_tp_plugin=TorchTensorParallelPlugin(tp_size=2)
    ),
    "nothing to shard over": lambda: ParallelismConfig(dp_replicate_size=2).fit(2, has_fsdp_plugin=True),
    "give the type of device": lambda: ParallelismConfig().get_device_mesh(),
    "there are no dimensions": lambda: Accelerator().tensor_parallel_rank,
}
"""By what is said of them."""


@pytest.mark.parametrize("message", REFUSED)
def test_what_would_have_no_effect_is_refused(message: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        REFUSED[message]()
    assert message in str(refused.value)
