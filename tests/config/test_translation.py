from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from notebook_accel.config import file
from notebook_accel.config.keys import from_config
from notebook_accel.config.layers import Layer, merge
from notebook_accel.config.settings import DEVICES, PRECISIONS, STRATEGIES
from notebook_accel.errors import ConfigurationError

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "num_processes": st.integers(1, 4),
    "device": st.sampled_from(DEVICES),
    "gpus": st.lists(st.integers(0, 7), min_size=1, max_size=4).map(tuple),
    "mixed_precision": st.sampled_from(PRECISIONS),
    "gradient_accumulation_steps": st.integers(1, 4),
    "strategy": st.sampled_from(STRATEGIES),
    "fsdp": st.fixed_dictionaries({}, optional={"fsdp_offload_params": st.booleans()}),
    "parallelism": st.fixed_dictionaries({}, optional={"parallelism_config_tp_size": st.integers(2, 3)}),
    "cluster": st.sampled_from(["", "auto", "10.0.0.1:6379", "ray://10.0.0.1:10001"]),
    "insecure": st.booleans(),
    "num_nodes": st.integers(1, 3),
    "node_rank": st.integers(0, 2),
    "master_addr": st.sampled_from(["127.0.0.1", "10.0.0.1"]),
    "port": st.integers(0, 65535),
    "max_restarts": st.integers(0, 3),
    "dynamo_backend": st.sampled_from(["no", "inductor"]),
    "debug": st.booleans(),
    "env": st.dictionaries(st.sampled_from("AB"), st.sampled_from(["", "x"])),
}


@given(st.fixed_dictionaries({}, optional=VALUES))
def test_a_configuration_survives_as_keys(values: dict[str, Any]) -> None:
    try:
        config = merge([Layer("magic", values, dict.fromkeys(values, "here"))])
    except ConfigurationError:
        assume(False)
    # The file gives each of its processes a GPU of the list; one too many or too few is for the plan to refuse.
    assume(config.gpus is None or config.num_processes in (None, len(config.gpus)))
    keys = {key: told.value for key, told in from_config(config).items()}
    same = replace(config, device="cuda") if config.gpus else config  # which the GPUs mean anyway
    read = merge([file.layer(keys, Path("config.yaml"))])
    assert (replace(read, device="cuda") if read.gpus else read) == same
