"""Which layers each way to choose them finds."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.fsdp import wrap

from notebook_accel import FullyShardedDataParallelPlugin
from notebook_accel.errors import ConfigurationError
from notebook_accel.train.strategies import wrapping


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 4)


class Net(nn.Module):
    _no_split_modules = ("Block",)

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])
        self.head = nn.Linear(4, 1)


def is_block(module: nn.Module) -> bool:
    return isinstance(module, Block)


def is_head(module: nn.Module) -> bool:
    return isinstance(module, nn.Linear) and module.out_features == 1


def found(**options: Any) -> list[str]:
    net = Net()
    names = {module: name for name, module in net.named_modules()}
    return [names[each] for each in wrapping.layers(net, FullyShardedDataParallelPlugin(**options))]


BLOCKS = ["blocks.1", "blocks.0"]
LARGE = ["blocks.1.down", "blocks.1.up", "blocks.0.down", "blocks.0.up"]
"""The layers with at least 36 parameters; then their blocks have none left."""


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ({}, []),
        ({"auto_wrap_policy": "TRANSFORMER_BASED_WRAP"}, BLOCKS),
        ({"auto_wrap_policy": "SIZE_BASED_WRAP", "min_num_params": 36}, LARGE),
        ({"auto_wrap_policy": is_block}, BLOCKS),
        ({"auto_wrap_policy": partial(wrap.transformer_auto_wrap_policy, transformer_layer_cls={Block})}, BLOCKS),
        ({"auto_wrap_policy": partial(wrap.size_based_auto_wrap_policy, min_num_params=36)}, LARGE),
        ({"auto_wrap_policy": partial(wrap.lambda_auto_wrap_policy, lambda_fn=is_head)}, ["head"]),
        ({"auto_wrap_policy": wrap.ModuleWrapPolicy({Block})}, BLOCKS),
        ({"auto_wrap_policy": wrap.CustomPolicy(is_head)}, ["head"]),
    ],
    ids=["none", "by name", "by size", "function", "transformer", "torch, by size", "lambda", "modules", "custom"],
)
def test_layers_are_chosen_inner_ones_first(policy: dict[str, Any], expected: list[str]) -> None:
    assert found(**policy) == expected


def test_arguments_of_fsdp1_for_single_layers_are_refused() -> None:
    policy = wrap.CustomPolicy(lambda module: {"limit_all_gathers": False} if is_block(module) else False)
    with pytest.raises(ConfigurationError, match="arguments of FSDP1"):
        found(auto_wrap_policy=policy)


def test_a_layer_that_shares_parameters_with_others_is_not_a_group_of_its_own() -> None:
    net = Net()
    net.blocks[0].up.weight = net.blocks[1].up.weight
    inside = net.blocks[1].down.weight = nn.Parameter(net.blocks[1].up.bias.new_zeros(4, 8))
    net.blocks[1].again = nn.Linear(8, 4)
    net.blocks[1].again.weight = inside
    chosen = [net.blocks[0].up, net.blocks[0].down, net.blocks[0], net.blocks[1].down, net.head, net.blocks]
    assert wrapping.with_own_parameters(net, chosen) == [net.blocks[0].down, net.head, net.blocks]


def ignored(net: Net, given: Any) -> list[nn.Module]:
    return wrapping.ignored(net, FullyShardedDataParallelPlugin(ignored_modules=given))


def test_ignored_modules_are_listed_or_match_a_pattern() -> None:
    net = Net()
    assert ignored(net, None) == []
    assert ignored(net, [net.head]) == [net.head]
    assert ignored(net, r"blocks\.\d") == [*net.blocks]
    with pytest.raises(ConfigurationError, match=r"matches none of blocks, blocks.0, "):
        ignored(net, "blocks.")


def test_what_is_sharded_together_has_one_type() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).to(torch.bfloat16), nn.LayerNorm(2))
    with pytest.raises(
        ConfigurationError,
        match=r"in this Sequential together.*torch.float32 \(0.weight\) and torch.bfloat16 \(1.weight\)",
    ):
        wrapping.check_types([model], [])
    wrapping.check_types([model[1], model], [])
    wrapping.check_types([model], [model[1]])
    model[1].requires_grad_(False)
    wrapping.check_types([model], [])
