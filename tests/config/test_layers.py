from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notebook_accel.config import LaunchConfig
from notebook_accel.config.call_arguments import unset
from notebook_accel.config.layers import Layer, merge
from notebook_accel.errors import ConfigurationError

SHARDS = "parallelism_config_dp_shard_size"
ORDER = ("file", "environment", "magic", "call")


def layer(name: str = "file", **values: Any) -> Layer:
    return Layer(name, values, {field: f"{field} in the {name}" for field in values})


def test_no_layers_give_the_defaults() -> None:
    assert merge([]) == LaunchConfig()
    assert merge([]).sources == {}


@given(st.lists(st.integers(1, 9) | st.none(), min_size=4, max_size=4))
@pytest.mark.smoke
def test_the_highest_layer_that_says_something_counts(said: list[int | None]) -> None:
    layers = [layer(name, max_restarts=n) if n else Layer(name) for name, n in zip(ORDER, said, strict=True)]
    config = merge(layers)
    told = [(name, number) for name, number in zip(ORDER, said, strict=True) if number]
    if not told:
        assert (config.max_restarts, "max_restarts" in config.sources) == (0, False)
        return
    assert (config.sources["max_restarts"].layer, config.max_restarts) == told[-1]
    assert str(config.sources["max_restarts"]) == f"max_restarts in the {told[-1][0]}"


@pytest.mark.parametrize(
    ("below", "above", "expected"),
    [
        ({"gpus": (0, 2)}, {"device": "cpu"}, {"device": "cpu"}),
        ({"gpus": (0, 2)}, {"device": "cuda"}, {"gpus": (0, 2), "device": "cuda"}),
        ({"device": "cpu", "num_processes": 8}, {"gpus": (1,)}, {"gpus": (1,)}),
        ({"gpus": (4, 5, 6)}, {"num_processes": 2}, {"gpus": (4, 5), "num_processes": 2}),
        ({"num_nodes": 2, "node_rank": 1, "master_addr": "a", "port": 5}, {"num_nodes": 1}, {"num_nodes": 1}),
        ({"strategy": "fsdp", "fsdp": {"fsdp_offload_params": True}}, {"strategy": "ddp"}, {"strategy": "ddp"}),
        ({"dynamo_backend": "eager", "dynamo": {"dynamo_mode": "x"}}, {"dynamo_backend": "no"}, {}),
        ({"gpus": (0, 1), "port": 5}, {"cluster": "auto", "num_nodes": 2}, {"cluster": "auto", "num_nodes": 2}),
        (
            {"num_processes": 2, "num_nodes": 4, "master_addr": "a", "node_rank": 1},
            {"cluster": "auto"},
            {"cluster": "auto", "num_processes": 8, "num_nodes": 4},
        ),
        ({"cluster": "auto", "num_processes": 8}, {"cluster": "slurm"}, {"cluster": "slurm", "num_processes": 8}),
        ({"cluster": "auto", "insecure": True}, {"cluster": ""}, {}),
        ({"num_nodes": 3}, {"cluster": "ssh://a,b"}, {"cluster": "ssh://a,b"}),
        ({"env": {"A": "1", "B": "1"}}, {"env": {"B": "2"}}, {"env": {"A": "1", "B": "2"}}),
    ],
    ids=str,
)
def test_what_a_higher_layer_says_takes_along_what_no_longer_fits(
    below: dict[str, Any], above: dict[str, Any], expected: dict[str, Any]
) -> None:
    config = merge([layer("file", **below), layer("call", **above)])
    assert config == LaunchConfig(**expected)
    assert set(expected) <= set(config.sources)


def test_what_one_place_says_later_is_laid_over_what_it_said_before() -> None:
    both = layer("magic", gpus=(0, 1), mixed_precision="bf16") + layer("magic", device="cpu")
    assert both == layer("magic", mixed_precision="bf16", device="cpu")


@pytest.mark.parametrize(
    ("values", "parts"),
    [
        (
            {"gpus": (0,), "device": "cpu"},
            ["gpus=[0] (from gpus in the file)", "device='cpu' (from device in the file)"],
        ),
        ({"node_rank": 1}, ["node_rank=1 (from node_rank in the file)", "0 to 0"]),
        (
            {"num_nodes": 2, "port": 0},
            ["use_port=0 (from port in the file)", "num_nodes=2 (from num_nodes in the file)"],
        ),
        ({"join_timeout": 5.0}, ["rdzv_conf (from join_timeout in the file) has no effect"]),
        ({"device": "cpu", "mixed_precision": "fp16"}, ["mixed_precision='fp16' (from mixed_precision in the file)"]),
        ({"fsdp": {"fsdp_offload_params": True}}, ["fsdp_offload_params", "choose strategy 'fsdp'"]),
        ({"dynamo": {"dynamo_mode": "max-autotune"}}, ["dynamo_mode", "inductor"]),
        ({"parallelism": {SHARDS: 2, "parallelism_config_tp_size": 2}, "num_processes": 2}, ["2 × 2 = 4 ranks"]),
        ({"parallelism": {SHARDS: 2}, "num_processes": 2, "num_nodes": 2}, [SHARDS, "is 4"]),
        ({"parallelism": {SHARDS: 2}, "strategy": "spmd"}, [SHARDS, "no effect on a TPU"]),
        ({"parallelism": {"parallelism_config_cp_comm_strategy": "alltoall"}}, ["without parallelism_config_cp_size"]),
        (
            {"min_processes": 2},
            ["min_processes=2 (from min_processes in the file) has no effect without restarts: give max_restarts"],
        ),
        (
            {"min_processes": 5, "max_restarts": 1, "num_processes": 2, "num_nodes": 2},
            ["more than the 4 ranks of num_processes (from num_processes in the file)"],
        ),
    ],
    ids=str,
)
def test_what_does_not_go_together_is_refused_with_where_it_stands(values: dict[str, Any], parts: list[str]) -> None:
    with pytest.raises(ConfigurationError) as refused:
        merge([layer("file", **values)])
    assert all(part in str(refused.value) for part in parts), str(refused.value)


@pytest.mark.parametrize("value", ["no", 0, 0.1])
def test_a_default_looks_like_its_value(value: Any) -> None:
    assert unset(value) == value
    assert repr(unset(value)) == repr(value)
    assert hash(unset(value)) == hash(value)
    assert isinstance(unset(value), type(value))
