from typing import Any

import pytest
from torch.distributed import fsdp

from notebook_accel.errors import ConfigurationError
from notebook_accel.train.options.fsdp import FullyShardedDataParallelPlugin as Plugin

FROM_ACCELERATE = {
    "FSDP_VERSION": "2",
    "FSDP_SHARDING_STRATEGY": "FULL_SHARD",
    "FSDP_RESHARD_AFTER_FORWARD": "true",
    "FSDP_OFFLOAD_PARAMS": "false",
    "FSDP_MIN_NUM_PARAMS": "100000000",
    "FSDP_BACKWARD_PREFETCH": "NO_PREFETCH",
    "FSDP_FORWARD_PREFETCH": "false",
    "FSDP_USE_ORIG_PARAMS": "true",
    "FSDP_CPU_RAM_EFFICIENT_LOADING": "true",
    "FSDP_SYNC_MODULE_STATES": "true",
    "FSDP_ACTIVATION_CHECKPOINTING": "false",
    "FSDP_ACTIVATION_CHECKPOINTING_OFFLOAD": "false",
}
"""What Accelerate's launch writes where nothing was chosen."""


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, {}),
        ({"FSDP_RESHARD_AFTER_FORWARD": "false"}, {"reshard_after_forward": False}),
        ({"FSDP_SHARDING_STRATEGY": "2"}, {"sharding_strategy": 2}),
        ({"FSDP_OFFLOAD_PARAMS": "true"}, {"cpu_offload": True}),
        ({"FSDP_OFFLOAD_PARAMS": "0"}, {"cpu_offload": False}),
        ({"FSDP_TRANSFORMER_CLS_TO_WRAP": "A,B"}, {"transformer_cls_names_to_wrap": ["A", "B"]}),
        (
            {"FSDP_AUTO_WRAP_POLICY": "SIZE_BASED_WRAP", "FSDP_MIN_NUM_PARAMS": "1e3"},
            {"auto_wrap_policy": "SIZE_BASED_WRAP", "min_num_params": 1000},
        ),
        ({"FSDP_STATE_DICT_TYPE": "FULL_STATE_DICT"}, {"state_dict_type": "FULL_STATE_DICT"}),
        ({"FSDP_CPU_RAM_EFFICIENT_LOADING": "true"}, {"cpu_ram_efficient_loading": True}),
        (
            {"FSDP_ACTIVATION_CHECKPOINTING": "true", "FSDP_ACTIVATION_CHECKPOINTING_OFFLOAD": "true"},
            {"activation_checkpointing": True, "activation_checkpointing_offload": True},
        ),
    ],
    ids=str,
)
def test_the_environment_of_a_launch_sets_the_plugin(environ: dict[str, str], expected: dict[str, Any]) -> None:
    assert Plugin.of_environment(environ) == Plugin(**expected)


def test_what_accelerate_sets_by_default_is_the_default() -> None:
    written = Plugin.of_environment(FROM_ACCELERATE)
    assert (written.offload, written.wrapping, written.reshard_after_forward) == (False, "no_wrap", True)
    assert written.state_dict_type == Plugin().state_dict_type


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"FSDP_VERSION": "1"}, "fsdp_version=1"),
        ({"FSDP_MIN_NUM_PARAMS": "many"}, "must be numbers, not 'many'"),
        ({"FSDP_OFFLOAD_PARAMS": "maybe"}, "FSDP_OFFLOAD_PARAMS must be true or false, not 'maybe'"),
        ({"FSDP_AUTO_WRAP_POLICY": "BY_LUCK"}, "auto_wrap_policy='BY_LUCK' must be one of"),
    ],
)
def test_an_invalid_value_is_refused(environ: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        Plugin.of_environment(environ)
    assert message in str(refused.value)


FULL, SHARDED = fsdp.FullStateDictConfig(), fsdp.ShardedStateDictConfig()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "SHARDED_STATE_DICT"),
        ({"state_dict_config": FULL, "optim_state_dict_config": fsdp.FullOptimStateDictConfig()}, "FULL_STATE_DICT"),
        ({"state_dict_config": SHARDED, "state_dict_type": "sharded_state_dict"}, "SHARDED_STATE_DICT"),
        ({"state_dict_type": fsdp.StateDictType.FULL_STATE_DICT}, "FULL_STATE_DICT"),
    ],
)
def test_what_fsdp1_was_told_about_checkpoints_chooses_their_type(given: dict[str, Any], expected: str) -> None:
    assert Plugin(**given).state_dict_type == expected


@pytest.mark.parametrize(
    "given",
    [
        {"state_dict_config": FULL, "state_dict_type": "SHARDED_STATE_DICT"},
        {"state_dict_config": FULL, "optim_state_dict_config": fsdp.ShardedOptimStateDictConfig()},
    ],
)
def test_two_types_of_checkpoints_contradict_each_other(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="contradict each other: give one"):
        Plugin(**given)


def test_local_state_dicts_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="LOCAL_STATE_DICT"):
        Plugin(state_dict_config=fsdp.LocalStateDictConfig())
