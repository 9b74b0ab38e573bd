from typing import Any

import pytest

from notebook_accel.config import LaunchConfig
from notebook_accel.config import environment_variables as variables
from notebook_accel.config.layers import merge
from notebook_accel.errors import ConfigurationError
from notebook_accel.train.ranks import environment


def configure(**environ: str) -> LaunchConfig:
    return merge([variables.from_environment(environ)])


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"HOME": "/", "NOTEBOOK_ACCEL_VIEW": "text", "ACCELERATE_MIXED_PRECISION": ""}, {}),
        ({"NOTEBOOK_ACCEL_NUM_PROCESSES": "3"}, {"num_processes": 3}),
        ({"NOTEBOOK_ACCEL_DEVICE": "gpu"}, {"device": "cuda"}),
        ({"NOTEBOOK_ACCEL_GPUS": "0, 2"}, {"gpus": (0, 2)}),
        ({"ACCELERATE_MIXED_PRECISION": "BF16"}, {"mixed_precision": "bf16"}),
        ({"NOTEBOOK_ACCEL_MIXED_PRECISION": "no", "ACCELERATE_MIXED_PRECISION": "bf16"}, {"mixed_precision": "no"}),
        ({"ACCELERATE_GRADIENT_ACCUMULATION_STEPS": "4"}, {"gradient_accumulation_steps": 4}),
        ({"ACCELERATE_USE_CPU": "true"}, {"device": "cpu"}),
        ({"ACCELERATE_USE_CPU": "false", "ACCELERATE_USE_FSDP": "0"}, {}),
        ({"NOTEBOOK_ACCEL_DEBUG": "1"}, {"debug": True}),
        ({"NOTEBOOK_ACCEL_TIMEOUT": "2.5"}, {"timeout": 2.5}),
        (
            {"ACCELERATE_USE_FSDP": "true", "FSDP_OFFLOAD_PARAMS": "true", "FSDP_SHARDING_STRATEGY": "2"},
            {"strategy": "fsdp", "fsdp": {"fsdp_offload_params": True, "fsdp_sharding_strategy": "SHARD_GRAD_OP"}},
        ),
        ({"NOTEBOOK_ACCEL_STALL_AFTER": "30"}, {"stall_after": 30.0}),
        ({"NOTEBOOK_ACCEL_STALL_AFTER": "off"}, {"stall_after": None}),
        ({"FSDP_OFFLOAD_PARAMS": "true"}, {}),
        (
            {"ACCELERATE_DYNAMO_BACKEND": "INDUCTOR", "ACCELERATE_DYNAMO_MODE": "default"},
            {"dynamo_backend": "inductor"},
        ),
    ],
    ids=str,
)
def test_variables_set_what_they_say(environ: dict[str, str], expected: dict[str, Any]) -> None:
    assert configure(**environ) == LaunchConfig(**expected)


def test_a_value_knows_its_variable() -> None:
    config = configure(ACCELERATE_MIXED_PRECISION="bf16", ACCELERATE_USE_CPU="1")
    assert {name: str(source) for name, source in config.sources.items()} == {
        "mixed_precision": "ACCELERATE_MIXED_PRECISION",
        "device": "ACCELERATE_USE_CPU",
    }


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"NOTEBOOK_ACCEL_NUM_PROCESSES": "two"}, "NOTEBOOK_ACCEL_NUM_PROCESSES must be a whole number, not 'two'"),
        ({"NOTEBOOK_ACCEL_GPUS": "all"}, "NOTEBOOK_ACCEL_GPUS must be whole numbers such as 0,2, not 'all'"),
        ({"ACCELERATE_MIXED_PRECISION": "fp64"}, "ACCELERATE_MIXED_PRECISION='fp64' is unknown; choose one of 'no'"),
        ({"ACCELERATE_USE_CPU": "maybe"}, "ACCELERATE_USE_CPU must be true or false, not 'maybe'"),
        ({"NOTEBOOK_ACCEL_STALL_AFTER": "-1"}, "NOTEBOOK_ACCEL_STALL_AFTER must be a number of seconds"),
        ({"NOTEBOOK_ACCEL_TIMEOUT": "soon"}, "NOTEBOOK_ACCEL_TIMEOUT must be a number of seconds"),
        (
            {"NOTEBOOK_ACCEL_NUM_PROCS": "2"},
            "NUM_PROCS in the environment is not a setting; did you mean NOTEBOOK_ACCEL_NUM_",
        ),
    ],
    ids=str,
)
def test_a_variable_that_cannot_work_is_named(environ: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        configure(**environ)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("config", "read"),
    [
        ({}, {}),
        (
            {"mixed_precision": "bf16", "gradient_accumulation_steps": 4},
            {"mixed_precision": "bf16", "accumulation_steps": 4},
        ),
        ({"debug": True}, {"debug": True}),
        ({"strategy": "fsdp"}, {"fsdp": {"FSDP_VERSION": "2"}}),
        (
            {"strategy": "fsdp", "fsdp": {"fsdp_offload_params": True, "fsdp_min_num_params": 5}},
            {"fsdp": {"FSDP_VERSION": "2", "FSDP_OFFLOAD_PARAMS": "true", "FSDP_MIN_NUM_PARAMS": "5"}},
        ),
        (
            {"dynamo_backend": "inductor", "dynamo": {"dynamo_mode": "max-autotune", "dynamo_use_fullgraph": True}},
            {"compile_backend": "inductor", "compile_mode": "max-autotune", "compile_fullgraph": True},
        ),
        (
            {"dynamo_backend": "inductor", "dynamo": {"dynamo_use_regional_compilation": True}},
            {"compile_backend": "inductor", "compile_regions": True},
        ),
    ],
    ids=str,
)
def test_ranks_read_what_the_launch_writes(config: dict[str, Any], read: dict[str, Any]) -> None:
    told = variables.rank_environment(LaunchConfig(**config), {})
    assert environment.read(told) == environment.Environment(**read)


def test_ranks_have_the_dimensions_of_the_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    user = {"ACCELERATE_USE_PARALLELISM_CONFIG": "true", "PARALLELISM_CONFIG_TP_SIZE": "2"}
    found = variables.from_environment(user)
    assert found.values == {"parallelism": {"parallelism_config_tp_size": 2}}
    assert variables.from_environment({**user, "ACCELERATE_USE_PARALLELISM_CONFIG": "false"}).values == {}
    sizes = {"parallelism_config_dp_shard_size": 4, "parallelism_config_cp_size": 2}
    told = variables.rank_environment(LaunchConfig(parallelism=sizes), user)
    assert environment.read(told).parallelism
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    pytest.importorskip("torch")
    from notebook_accel.train.options.parallelism import ParallelismConfig

    assert ParallelismConfig() == ParallelismConfig(dp_shard_size=4, cp_size=2, dp_replicate_size=1, tp_size=1)


def test_a_launch_overrules_what_its_ranks_would_inherit() -> None:
    inherited = {
        "ACCELERATE_MIXED_PRECISION": "bf16",
        "ACCELERATE_GRADIENT_ACCUMULATION_STEPS": "4",
        "ACCELERATE_USE_FSDP": "true",
        "ACCELERATE_DYNAMO_BACKEND": "INDUCTOR",
        "ACCELERATE_DEBUG_MODE": "1",
    }
    read = environment.read({**inherited, **variables.rank_environment(LaunchConfig(), inherited)})
    assert read == environment.Environment()


def test_what_nobody_has_asked_for_is_not_written() -> None:
    """The peer's Accelerator would take it for more than the arguments that the user's code gives it."""
    assert variables.rank_environment(LaunchConfig(), {}) == {"ACCELERATE_MIXED_PRECISION": "no"}
