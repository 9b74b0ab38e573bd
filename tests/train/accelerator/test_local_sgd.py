"""Local SGD: ranks train on their own for some steps, then average."""

from __future__ import annotations

from typing import Any

import accelerate
import accelerate.local_sgd
import pytest
import torch
from torch import nn

from notebook_accel import Accelerator, FullyShardedDataParallelPlugin, LocalSGD
from notebook_accel.errors import ConfigurationError, RankError
from tests.train.conftest import Cases, Ranks


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))


def train(package: str, steps: int, enabled: bool = True, accumulation: int = 1) -> list[list[float]]:
    """Trains on 5 batches; returns the first weights after each of them, and after the end."""
    accelerator: Any = (
        accelerate.Accelerator(cpu=True)
        if package == "accelerate"
        else Accelerator(gradient_accumulation_steps=accumulation)
    )
    local: Any = accelerate.local_sgd.LocalSGD if package == "accelerate" else LocalSGD
    net = model()
    net, optimizer = accelerator.prepare(net, torch.optim.SGD(net.parameters(), lr=0.1))
    torch.manual_seed(accelerator.process_index)
    seen = []
    with local(accelerator, net, steps, enabled) as local_sgd:
        for _ in range(5):
            with accelerator.accumulate(net):
                accelerator.backward(net(torch.randn(4, 2)).square().sum())
                optimizer.step()
                optimizer.zero_grad()
                local_sgd.step()
            seen.append(next(iter(net.parameters())).flatten().tolist())
    seen.append(next(iter(net.parameters())).flatten().tolist())
    return seen


@pytest.fixture(scope="module")
def on_two() -> Cases:
    calls: list[tuple[Any, ...]] = [
        (train, "ours", 2),
        (train, "ours", 2, False),
        (train, "ours", 5, True, 2),
        (fail_on_one,),
        (train, "accelerate", 2),
    ]
    return Cases({call: call for call in calls})


def test_ranks_agree_after_every_round_and_at_the_end(on_two: Cases) -> None:
    one, other = on_two[train, "ours", 2]
    agree = [a == b for a, b in zip(one, other, strict=True)]
    assert agree == [False, True, False, True, False, True]


def test_ranks_train_on_their_own_while_they_accumulate_too(on_two: Cases) -> None:
    one, other = on_two[train, "ours", 5, True, 2]
    agree = [a == b for a, b in zip(one, other, strict=True)]
    assert agree == [True, False, False, False, True, True]


def test_the_weights_are_those_of_accelerate(on_two: Cases) -> None:
    ours, theirs = on_two[train, "ours", 2], on_two[train, "accelerate", 2]
    torch.testing.assert_close(torch.tensor(ours), torch.tensor(theirs), rtol=0, atol=1e-6)


def test_switched_off_it_is_ddp(on_two: Cases) -> None:
    one, other = on_two[train, "ours", 2, False]
    assert one == other


def test_with_one_rank_it_does_nothing() -> None:
    assert len(train("ours", 2)) == 6


def test_no_steps_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="every 1 step or more"):
        LocalSGD(Accelerator(cpu=True), model(), 0)


def refused(fsdp: bool) -> None:
    accelerator = Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin() if fsdp else None)
    net = model()
    if fsdp:
        net = accelerator.prepare(net)
    LocalSGD(accelerator, net, 2)


@pytest.mark.parametrize(
    ("fsdp", "cause", "message"),
    [
        (True, NotImplementedError, "under FSDP a rank holds only a part"),
        (False, ConfigurationError, "the prepared model"),
    ],
)
def test_models_that_cannot_be_averaged_are_refused(
    fsdp: bool, cause: type[Exception], message: str, ranks: Ranks
) -> None:
    with pytest.raises(RankError, match=message) as raised:
        ranks(refused, fsdp)
    assert isinstance(raised.value.__cause__, cause)


def fail_on_one() -> str:
    accelerator = Accelerator()
    net = accelerator.prepare(model())
    try:
        with LocalSGD(accelerator, net, 2):
            raise KeyError(accelerator.process_index)
    except KeyError as error:
        return str(error)


def test_a_block_that_fails_does_not_average(on_two: Cases) -> None:
    assert on_two[(fail_on_one,)] == ["0", "1"]
