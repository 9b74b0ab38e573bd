"""Which layers each way to choose them finds."""

from functools import partial
from typing import Any

import pytest
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
