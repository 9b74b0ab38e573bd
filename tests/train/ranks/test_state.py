import pickle
from collections import deque
from typing import Any

import accelerate
import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils.data import Subset

from notebook_accel import (
    Accelerator,
    AcceleratorState,
    DistributedType,
    DynamoBackend,
    FullyShardedDataParallelPlugin,
    GradientState,
    PartialState,
    TorchDynamoPlugin,
)
from notebook_accel.errors import ConfigurationError
from notebook_accel.state import is_initialized
from notebook_accel.train.ranks.rank_aware import share
from tests.train.conftest import Ranks
from tests.train.data.loaders import Encoding, Pair, Sample
from tests.train.parity.mapped import Rows


def test_a_process_that_nobody_launched_is_one_device() -> None:
    state = PartialState()
    assert (state.num_processes, state.process_index, state.local_process_index) == (1, 0, 0)
    assert (state.distributed_type, state.backend, state.use_distributed) == (DistributedType.NO, None, False)
    assert state.is_main_process
    assert state.is_local_main_process
    assert state.is_last_process
    assert PartialState() is state
    PartialState._reset_state()
    assert not state.initialized
    assert PartialState() is not state


def test_every_way_to_work_together_that_accelerate_knows_can_be_asked_for() -> None:
    known = {each.name: each.value for each in DistributedType}
    assert known == {**{each.name: each.value for each in accelerate.DistributedType}, "TP": "TP"}
    assert Accelerator().distributed_type not in (DistributedType.DEEPSPEED, DistributedType.MEGATRON_LM)


def test_debugging_can_be_asked_for_of_either_state() -> None:
    Accelerator().state.debug = True
    assert PartialState().debug
    PartialState().debug = False
    assert not Accelerator().state.debug


def places() -> tuple[Any, ...]:
    state = PartialState()
    return state.process_index, state.num_processes, str(state.device), state.backend, state.distributed_type.value


def test_ranks_of_a_launch_need_no_arguments(ranks: Ranks) -> None:
    assert ranks(places, size=3) == [(rank, 3, "cpu", "gloo", "MULTI_CPU") for rank in range(3)]


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ({}, {"mixed_precision": "bf16"}, "'bf16' was requested, but this process already has an Accelerator with mix"),
        ({}, {"mixed_precision": "bf16"}, "with mixed_precision='no'"),
        ({"mixed_precision": "bf16"}, {"mixed_precision": "no"}, "with mixed_precision='bf16'"),
        ({}, {"dynamo_plugin": TorchDynamoPlugin(backend="eager")}, "dynamo_plugin"),
        ({}, {"fsdp_plugin": FullyShardedDataParallelPlugin()}, "fsdp_plugin=None"),
    ],
)  # fmt: skip
def test_a_second_accelerator_with_other_settings_is_refused(
    first: dict[str, Any], second: dict[str, Any], message: str
) -> None:
    Accelerator(**first)
    with pytest.raises(ConfigurationError) as refused:
        Accelerator(**second)
    assert message in str(refused.value)


def test_a_second_accelerator_that_agrees_shares_the_state() -> None:
    first = Accelerator(mixed_precision="bf16")
    for second in (Accelerator(), Accelerator(mixed_precision="bf16")):
        assert second.state is first.state
        assert second.mixed_precision == "bf16"


def test_states_survive_pickling() -> None:
    state, gradients = AcceleratorState(mixed_precision="bf16"), GradientState()
    gradients.sync_gradients = False
    gradients._add_dataloader(share)
    assert pickle.loads(pickle.dumps(state)) is state
    assert pickle.loads(pickle.dumps(gradients)) is gradients
    dump = pickle.dumps((state, gradients))
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()
    state, gradients = pickle.loads(dump)
    assert (state.mixed_precision, gradients.sync_gradients) == ("bf16", False)


class Loader:
    end_of_dataloader, remainder = True, 3


def test_the_gradient_state_reads_the_innermost_loader_and_keeps_none_alive() -> None:
    state, outer, inner = GradientState(), Loader(), Loader()
    inner.end_of_dataloader, inner.remainder = False, 1
    assert (state.active_dataloader, state.end_of_dataloader, state.remainder) == (None, False, -1)
    state._add_dataloader(outer)
    state._add_dataloader(inner)
    assert (state.active_dataloader, state.end_of_dataloader, state.remainder) == (inner, False, 1)
    state._remove_dataloader(inner)
    assert (state.in_dataloader, state.end_of_dataloader, state.remainder) == (True, True, 3)
    del outer
    assert not state.in_dataloader


@pytest.mark.parametrize(
    ("inputs", "pad", "shares"),
    [
        ([0, 1, 2, 3, 4], False, [[0, 1], [2, 3], [4]]),
        ([0, 1, 2, 3, 4], True, [[0, 1], [2, 3], [4, 4]]),
        ((0, 1), False, [(0,), (1,), ()]),
        ([0, 1], True, [[0], [1], [1]]),
        (
            {"a": [0, 1, 2], "b": (3, 4, 5)},
            False,
            [{"a": [0], "b": (3,)}, {"a": [1], "b": (4,)}, {"a": [2], "b": (5,)}],
        ),
    ],
)
def test_inputs_are_shared_out(inputs: Any, pad: bool, shares: list[Any]) -> None:
    assert [share(inputs, rank, 3, pad=pad) for rank in range(3)] == shares


def test_a_tensor_is_shared_out_and_padded() -> None:
    assert [share(torch.arange(4), rank, 3, pad=True).tolist() for rank in range(3)] == [[0, 1], [2, 2], [3, 3]]


KINDS = {
    "an array": (np.arange(5), lambda part: part.tolist()),
    "a deque": (deque(range(5)), list),
    "a table": (pd.DataFrame({"a": range(5)}, index=range(9, 4, -1)), lambda part: part["a"].tolist()),
    "a dictionary of arrays": ({"a": np.arange(5), "scale": 7.5}, lambda part: part["a"].tolist()),
    "a nested dictionary": ({"a": list(range(5)), "b": {"c": torch.arange(5)}}, lambda part: part["b"]["c"].tolist()),
    "a named tuple": (Pair(list(range(5)), "style"), lambda part: part.inputs),
    "a dataclass": (Sample(torch.arange(5), "style"), lambda part: part.inputs.tolist()),
    "an encoding": (Encoding({"ids": torch.arange(5)}, list(range(5))), lambda part: part.encodings),
    "a data set of torch": (Subset(list(range(5)), list(range(5))), list),
    "tensors": (tuple(torch.tensor([number]) for number in range(5)), lambda part: torch.cat(part).tolist()),
}


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_inputs_is_shared_out_and_padded_as_itself(name: str) -> None:
    inputs, numbers = KINDS[name]
    for pad, shares in ((False, [[0, 1], [2, 3], [4]]), (True, [[0, 1], [2, 3], [4, 4]])):
        found = [share(inputs, rank, 3, pad=pad) for rank in range(3)]
        assert {type(each) for each in found} == {type(inputs)}
        assert [numbers(each) for each in found] == shares


@pytest.mark.parametrize(
    ("count", "shares"),
    [
        (5, [[0, 1], [2, 3], [4, 4]]),
        (4, [[0, 1], [2, 3], [3, 3]]),
        (3, [[0], [1], [2]]),
        (1, [[0], [0], [0]]),
        (0, [[], [], []]),
    ],
)
def test_a_data_set_is_shared_out_and_padded_as_a_data_set(count: int, shares: list[Any]) -> None:
    """The shares are those that Accelerate gives of a data set of the `datasets` library."""
    rows = Rows([{"k": number} for number in range(count)])
    assert [len(share(rows, rank, 3)) for rank in range(3)] == [len(range(rank, count, 3)) for rank in range(3)]
    padded = [share(rows, rank, 3, pad=True) for rank in range(3)]
    assert [type(each) for each in padded] == [Rows] * 3
    assert [[row["k"] for row in each] for each in padded] == shares


def test_a_bare_plugin_compiles_as_the_launch_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_DYNAMO_BACKEND", "INDUCTOR")
    monkeypatch.setenv("ACCELERATE_DYNAMO_USE_FULLGRAPH", "true")
    monkeypatch.setenv("ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION", "true")
    found = AcceleratorState(dynamo_plugin=TorchDynamoPlugin(mode="default"), cpu=True).dynamo_plugin
    assert (found.backend, found.mode, found.fullgraph) == (DynamoBackend.INDUCTOR, "default", True)
    assert found.use_regional_compilation
    AcceleratorState(dynamo_plugin=TorchDynamoPlugin(mode="default"))  # the same, so that both agree


def test_without_a_launch_nothing_is_compiled() -> None:
    assert AcceleratorState(cpu=True).dynamo_plugin.backend is DynamoBackend.NO
    assert DynamoBackend.NO == "NO"
    assert TorchDynamoPlugin(backend="eager").backend is DynamoBackend.EAGER


def test_the_user_may_choose_the_device_of_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_TORCH_DEVICE", "meta")
    assert PartialState().device == torch.device("meta")
    PartialState._reset_state()
    assert PartialState(cpu=True).device == torch.device("cpu")
    PartialState._reset_state()
    monkeypatch.setenv("ACCELERATE_TORCH_DEVICE", "gpu")
    with pytest.raises(ConfigurationError, match="ACCELERATE_TORCH_DEVICE='gpu' is not a device of torch"):
        PartialState()


def test_a_state_knows_whether_there_is_one() -> None:
    assert not is_initialized()
    AcceleratorState(cpu=True)
    assert is_initialized()


def test_what_cannot_be_shared_out_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="but have several"):
        share({"a": [1], "b": [1, 2]}, 0, 2)
    with pytest.raises(ConfigurationError, match="int can't be divided among ranks"):
        share(3, 0, 2)
    with pytest.raises(ConfigurationError, match="a dict can't be divided among ranks"):
        share({"scale": 7.5}, 0, 2)
    with pytest.raises(ConfigurationError, match="a range can't be padded: pass a list"):
        share(range(3), 1, 2, pad=True)


def only_some() -> tuple[Any, ...]:
    accelerator = Accelerator()
    rank = accelerator.process_index
    with accelerator.split_between_processes([1, 2, 3]) as own:
        pass
    with accelerator.main_process_first():
        pass
    with accelerator.local_main_process_first():
        pass
    accelerator.print("once")
    return (
        own,
        accelerator.on_main_process(lambda: rank)(),
        accelerator.on_local_main_process(lambda: rank)(),
        accelerator.on_last_process(lambda: rank)(),
        accelerator.on_process(process_index=1)(lambda: rank)(),
        accelerator.on_local_process(lambda: rank, local_process_index=1)(),
    )


def test_some_things_happen_on_some_ranks(ranks: Ranks, capfd: pytest.CaptureFixture[str]) -> None:
    assert ranks(only_some) == [([1, 2], 0, 0, None, None, None), ([3], None, None, 1, 1, 1)]
    assert capfd.readouterr().out.count("once") == 1


@pytest.mark.parametrize("pad", [False, True])
def test_a_text_is_one_sample_that_every_rank_gets(pad: bool) -> None:
    assert [share("a cat", rank, 2, pad=pad) for rank in range(2)] == ["a cat", "a cat"]
    assert share({"prompt": ["a cat", "a dog"]}, 1, 2, pad=pad) == {"prompt": ["a dog"]}


def test_a_single_rank_does_what_any_rank_would_do() -> None:
    accelerator = Accelerator(cpu=True)
    assert accelerator.on_process(process_index=1)(lambda: "done")() == "done"
    assert accelerator.on_local_process(lambda: "done", local_process_index=1)() == "done"


@pytest.mark.parametrize("name", ["deepspeed_plugin", "megatron_lm_plugin"])
def test_a_plugin_that_is_not_supported_is_refused_by_name(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{name} is not supported"):
        AcceleratorState(**{name: object()})
    assert not is_initialized()


def test_plugins_of_others_are_none_for_libraries_that_look() -> None:
    state = Accelerator(cpu=True).state
    assert (state.deepspeed_plugin, state.megatron_lm_plugin) == (None, None)


def launched() -> tuple[bool, bool]:
    return PartialState().fork_launched, Accelerator().state.fork_launched


def test_a_rank_knows_that_it_was_launched(ranks: Ranks) -> None:
    assert launched() == (False, False)
    assert ranks(launched) == [(True, True), (True, True)]
