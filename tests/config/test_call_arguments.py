import dataclasses
import enum
import functools
import inspect
import math
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import accelerate
import numpy as np
import pytest
import torch

from notebook_accel import notebook_launcher
from notebook_accel.config import LaunchConfig
from notebook_accel.config.call_arguments import check_call, from_call
from notebook_accel.config.layers import Layer, merge
from notebook_accel.errors import ConfigurationError

TWO_MACHINES = {"num_nodes": 2, "master_addr": "10.0.0.1"}


class Precision(str, enum.Enum):
    BF16 = "bf16"


def configure(**given: Any) -> LaunchConfig:
    return merge([from_call(given)])


def parameters() -> dict[str, Any]:
    return {name: each.default for name, each in inspect.signature(notebook_launcher).parameters.items()}


def test_an_argument_that_is_left_out_says_nothing() -> None:
    assert from_call(parameters()) == Layer("call")


def test_the_defaults_of_the_peer_are_the_defaults_of_the_settings() -> None:
    theirs = inspect.signature(accelerate.notebook_launcher).parameters
    plain = {name: each.default for name, each in theirs.items() if name not in ("function", "args")}
    assert configure(**plain) == LaunchConfig()


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        configure().port = 1


@pytest.mark.parametrize(
    ("given", "field", "value"),
    [
        ({"num_processes": None}, "num_processes", None),
        ({"num_processes": 3}, "num_processes", 3),
        ({"num_processes": np.int64(3)}, "num_processes", 3),
        ({"num_processes": torch.tensor(3)}, "num_processes", 3),
        *[({"mixed_precision": name}, "mixed_precision", name) for name in ("no", "fp16", "bf16", "fp8")],
        ({"mixed_precision": Precision.BF16}, "mixed_precision", "bf16"),
        ({"use_port": "29501"}, "port", 29501),
        ({"use_port": 29501}, "port", 29501),
        ({"use_port": 0}, "port", 0),
        ({"use_port": 65535}, "port", 65535),
        ({"master_addr": "localhost"}, "master_addr", "localhost"),
        (TWO_MACHINES, "master_addr", "10.0.0.1"),
        ({**TWO_MACHINES, "node_rank": 1}, "node_rank", 1),
        ({**TWO_MACHINES, "node_rank": 1}, "num_nodes", 2),
        ({"rdzv_backend": ""}, "master_addr", "127.0.0.1"),
        ({"num_nodes": 2, "rdzv_endpoint": "head.example:1234"}, "master_addr", "head.example"),
        ({"num_nodes": 2, "rdzv_endpoint": "head.example:1234"}, "port", 1234),
        ({"rdzv_endpoint": "127.0.0.1:1234", "use_port": 1234}, "port", 1234),
        ({**TWO_MACHINES, "rdzv_conf": {"timeout": 20}}, "join_timeout", 20.0),
        ({**TWO_MACHINES, "rdzv_conf": {"join_timeout": 20}}, "join_timeout", 20.0),
        ({"rdzv_conf": {}}, "join_timeout", 300.0),
        ({"rdzv_id": 17}, "run_id", "17"),
        ({"name": " digits, wide "}, "title", "digits, wide"),
        ({"notes": "one\ntwo"}, "notes", "one\ntwo"),
        ({"max_restarts": 2}, "max_restarts", 2),
        ({"monitor_interval": 1}, "heartbeat", 1.0),
        (
            {"log_line_prefix_template": "<${role_name} $rank/${local_rank}>"},
            "label",
            "<${role_name} $rank/${local_rank}>",
        ),
        ({"log_line_prefix_template": ""}, "label", ""),
        ({"gpus": [2, 0]}, "gpus", (2, 0)),
        ({"gpus": range(2)}, "gpus", (0, 1)),
        ({"gpus": [1], "device": "cuda"}, "gpus", (1,)),
        ({"device": "cpu"}, "device", "cpu"),
        ({"device": "gpu"}, "device", "cuda"),
        ({"device": torch.device("cuda", 1)}, "device", "cuda"),
        ({"device": "mps"}, "device", "mps"),
        ({"env": {"A": "b", "N": 1}}, "env", {"A": "b", "N": "1"}),
        ({"timeout": 2.5}, "timeout", 2.5),
        ({"stall_after": 0.3}, "stall_after", 0.3),
        ({"stall_after": None}, "stall_after", None),
    ],
    ids=str,
)
def test_an_argument_is_taken(given: dict[str, Any], field: str, value: object) -> None:
    taken = getattr(configure(**given), field)
    assert taken == value
    assert type(taken) is type(value)


@pytest.mark.parametrize(
    ("given", "named", "advice"),
    [
        *[({"num_processes": bad}, "num_processes", "whole number") for bad in ("2", 2.0, True, [2])],
        ({"num_processes": 0}, "num_processes=0", "at least 1"),
        ({"mixed_precision": "fp32"}, "mixed_precision='fp32'", "'no', 'fp16', 'bf16', 'fp8'"),
        ({"mixed_precision": None}, "mixed_precision=None", "choose one of"),
        *[({"use_port": bad}, "use_port", "") for bad in (None, "http", "", math.nan, math.inf, [1])],
        ({"use_port": -1}, "use_port=-1", "0 (any free one) to 65535"),
        ({"use_port": 65536}, "use_port=65536", "0 (any free one) to 65535"),
        *[({"master_addr": bad}, "master_addr", "host name or an address") for bad in (None, "", 127)],
        ({"master_addr": "10.0.0.1"}, "master_addr='10.0.0.1'", "give num_nodes"),
        ({"node_rank": -1}, "node_rank=-1", "at least 0"),
        ({"node_rank": 1}, "node_rank=1", "0 to 0"),
        ({**TWO_MACHINES, "node_rank": 2}, "node_rank=2", "0 to 1"),
        ({"num_nodes": 0}, "num_nodes=0", "at least 1"),
        ({"num_nodes": "2"}, "num_nodes", "whole number"),
        ({**TWO_MACHINES, "use_port": 0}, "use_port=0", "num_nodes"),
        ({"rdzv_backend": "c10d"}, "rdzv_backend='c10d'", "Leave it at"),
        ({"num_nodes": 2, "rdzv_endpoint": "head.example"}, "rdzv_endpoint", '"host:port"'),
        ({"num_nodes": 2, "rdzv_endpoint": "head:99999"}, "rdzv_endpoint='head:99999'", "65535"),
        ({**TWO_MACHINES, "rdzv_endpoint": "10.0.0.2:29500"}, "rdzv_endpoint", "give one of them"),
        ({"rdzv_conf": {"timeout": 20}}, "rdzv_conf", "num_nodes=1"),
        ({**TWO_MACHINES, "rdzv_conf": {"last_call_timeout": 20}}, "rdzv_conf", "'timeout'"),
        ({**TWO_MACHINES, "rdzv_conf": {"timeout": 0}}, "rdzv_conf", "above 0"),
        ({**TWO_MACHINES, "rdzv_conf": "timeout=20"}, "rdzv_conf", "'timeout'"),
        ({"max_restarts": -1}, "max_restarts=-1", "at least 0"),
        ({"min_processes": 0}, "min_processes=0", "at least 1"),
        ({"max_restarts": 1.0}, "max_restarts", "whole number"),
        *[({"monitor_interval": bad}, "monitor_interval", "above 0") for bad in (0, -1, math.nan, math.inf, "1", True)],
        *[
            ({"log_line_prefix_template": bad}, "log_line_prefix_template", "${rank}")
            for bad in ("${world}", "${rank", "$", 5)
        ],
        *[({"gpus": bad}, "gpus", "[0, 2]") for bad in (2, "0,2", [], {0, 2})],
        ({"gpus": [-1]}, "gpus=-1", "at least 0"),
        ({"gpus": ["0"]}, "gpus", "whole number"),
        ({"gpus": [0], "device": "cpu"}, "gpus=[0]", "contradicts device='cpu'"),
        ({"device": "npu"}, "device='npu'", "'cpu', 'cuda', 'mps', 'tpu'"),
        ({"env": ["A=b"]}, "env", "dict"),
        *[({"env": {bad: "b"}}, "env", "not the name") for bad in ("", "A=b", "A\0", 1)],
        *[({"env": {"A": bad}}, "env['A']", "string") for bad in (None, "b\0", ["b"])],
        *[({"timeout": bad}, "timeout", "above 0") for bad in (0, -1, math.nan, math.inf, "10", True)],
        ({"stall_after": 0}, "stall_after", "above 0"),
        ({"name": " "}, "name", "non-empty"),
        ({"name": "a\nb"}, "name", "put the rest into notes="),
        ({"name": "a" * 121}, "name has 121 characters", "at most 120"),
        ({"notes": 3}, "notes", "must be a non-empty string"),
    ],
    ids=str,
)
def test_an_argument_that_cannot_work_is_named(given: dict[str, Any], named: str, advice: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        configure(**given)
    assert named in str(refused.value)
    assert advice in str(refused.value)


@pytest.mark.parametrize(
    ("args", "kwargs", "expected"),
    [
        ((), None, ((), {})),
        ([1, "a"], {"lr": 0.1}, ((1, "a"), {"lr": 0.1})),
        (range(2), {}, ((0, 1), {})),
    ],
)
def test_a_call_is_taken(args: Any, kwargs: Any, expected: object) -> None:
    function, *rest = check_call(print, args, kwargs)
    assert function is print
    assert tuple(rest) == expected


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "named", "advice"),
    [
        (None, (), None, "function", "`train`, rather than what it returned, `train()`"),
        (0.93, (), None, "0.93", "`train()`"),
        (print, 5, None, "args", "args=(value,)"),
        (print, "data.csv", None, "args", "args=(value,)"),
        (print, {"a": 1}, None, "args", "args=(value,)"),
        (print, np.zeros(3), None, "args", "args=(value,)"),
        (print, (), [("lr", 0.1)], "kwargs", "dict"),
        (print, (), {1: 0.1}, "kwargs", "names"),
    ],
)
def test_what_is_no_call_is_refused(function: Any, args: Any, kwargs: Any, named: str, advice: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        check_call(function, args, kwargs)
    assert named in str(refused.value)
    assert advice in str(refused.value)


def test_a_long_value_does_not_swamp_the_message() -> None:
    with pytest.raises(ConfigurationError) as refused:
        check_call(print, "x" * 10_000, None)
    assert len(str(refused.value)) < 300


async def wait() -> None: ...


def count() -> Iterator[int]:
    yield 1


async def count_slowly() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (wait, r"wait is an async function, .* Pass lambda: asyncio\.run\(wait\(\)\) instead"),
        (functools.partial(wait), "function is an async function"),
        (count, r"count is a generator function, so a call would run none .* Pass lambda: list\(count\(\)\) instead"),
        (count_slowly, "count_slowly is an async generator function"),
    ],
)
def test_a_function_whose_call_runs_none_of_its_code_is_refused(function: Callable[..., Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        check_call(function, (), None)
    check_call(lambda: list(function()), (), None)
