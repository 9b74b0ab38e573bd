"""What a loop on several ranks has forgotten to prepare is said at its first backward pass, once, with the line."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.data import DataLoader, TensorDataset

from notebook_accel import Accelerator, DistributedDataParallelKwargs, FullyShardedDataParallelPlugin
from tests.train.conftest import Cases

pytestmark = pytest.mark.early

Parts = tuple[nn.Module, torch.optim.Optimizer, DataLoader[Any]]


def parts(accelerator: Accelerator) -> Parts:
    model = nn.Linear(3, 1).to(accelerator.device)
    data = TensorDataset(torch.randn(8, 3), torch.randn(8, 1))
    return model, torch.optim.SGD(model.parameters(), lr=0.1), DataLoader(data, batch_size=2, shuffle=True)


def warned(prepare: Callable[[Accelerator], Parts], **options: Any) -> list[tuple[str, str]]:
    """The warnings of a loop over what `prepare` returns, each with the code of its line."""
    accelerator = Accelerator(**options)
    model, optimizer, loader = prepare(accelerator)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for inputs, targets in loader:
            optimizer.zero_grad()
            accelerator.backward(nn.functional.mse_loss(model(inputs), targets))
            optimizer.step()
    with open(__file__) as file:
        lines = file.read().splitlines()
    ours = [each for each in found if "accelerator.prepare" in str(each.message)]  # torch warns of its own affairs
    assert all(each.filename == __file__ for each in ours)
    return [(str(each.message).partition(":")[0], lines[each.lineno - 1].strip()) for each in ours]


def all_prepared(accelerator: Accelerator) -> Parts:
    model, optimizer, loader = accelerator.prepare(*parts(accelerator))
    return model, optimizer, loader


def no_model(accelerator: Accelerator) -> Parts:
    model, optimizer, loader = parts(accelerator)
    return model, optimizer, accelerator.prepare(loader)


def no_optimizer(accelerator: Accelerator) -> Parts:
    model, optimizer, loader = parts(accelerator)
    model, loader = accelerator.prepare(model, loader)
    return model, optimizer, loader


def no_loader(accelerator: Accelerator) -> Parts:
    model, optimizer, loader = parts(accelerator)
    model, optimizer = accelerator.prepare(model, optimizer)
    return model, optimizer, loader


def the_model_itself(accelerator: Accelerator) -> Parts:
    model, optimizer, loader = parts(accelerator)
    _, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    return model, optimizer, loader


def own_shares(accelerator: Accelerator) -> Parts:
    """A sampler of the user's selects this rank's share."""
    model, optimizer, loader = parts(accelerator)
    model, optimizer = accelerator.prepare(model, optimizer)
    sampler = torch.utils.data.DistributedSampler(loader.dataset)
    return model, optimizer, DataLoader(loader.dataset, batch_size=2, sampler=sampler)


def dispatched(accelerator: Accelerator) -> Parts:
    accelerator.dataloader_config.dispatch_batches = True
    return all_prepared(accelerator)


def another_loader_was_read(accelerator: Accelerator) -> Parts:
    for _ in parts(accelerator)[2]:
        pass
    return all_prepared(accelerator)


def two_accelerators(accelerator: Accelerator) -> Parts:
    """Another one's first optimizer has not stepped yet."""
    other = Accelerator()
    for inputs, targets in other.prepare(parts(other)[2]):
        first = other.prepare(nn.Linear(3, 1))
        other.backward(nn.functional.mse_loss(first(inputs), targets))
        break
    return all_prepared(accelerator)


LOSS = "accelerator.backward(nn.functional.mse_loss(model(inputs), targets))"
CASES = {
    "all": (all_prepared, {}),
    "sharded": (all_prepared, {"fsdp_plugin": FullyShardedDataParallelPlugin()}),
    "accumulated": (all_prepared, {"gradient_accumulation_steps": 2}),
    "static": (all_prepared, {"kwargs_handlers": [DistributedDataParallelKwargs(static_graph=True)]}),
    "dispatched": (dispatched, {}),
    "own shares": (own_shares, {}),
    "another loader": (another_loader_was_read, {}),
    "two accelerators": (two_accelerators, {}),
    "no model": (no_model, {}),
    "no optimizer": (no_optimizer, {}),
    "no loader": (no_loader, {}),
    "the model itself": (the_model_itself, {}),
}


def run(name: str) -> list[tuple[str, str]]:
    prepare, options = CASES[name]
    return warned(prepare, **options)


@pytest.fixture(scope="module")
def found() -> Cases:
    loops = {name: (run, name) for name in CASES}
    return Cases({**loops, **{cause: (differing, cause) for cause in DIFFERENCES}, "copied": (copied,)})


@pytest.mark.parametrize(
    "name",
    [
        "all",
        "sharded",
        "accumulated",
        "dispatched",
        "own shares",
        "another loader",
        "two accelerators",
        "the model itself",
        "static",
    ],
)
def test_nothing_is_said_of_a_loop_that_is_right(found: Cases, name: str) -> None:
    assert found[name] == [[], []]


NO_OPTIMIZER = (
    "this optimizer was not prepared, so accelerator.save_state leaves it out, and neither gradient accumulation nor "
    "fp16's scaling applies to it"
)
OWN_MODELS = "so each of the 2 ranks trains a model of its own"


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        (
            "no model",
            f"this loss depends on parameters that were not prepared, such as one of shape (1, 3), {OWN_MODELS}",
            LOSS,
        ),
        (
            "no loader",
            "this loop reads a DataLoader of 8 samples that was not prepared, so each of the 2 ranks reads all of them",
            LOSS,
        ),
        ("no optimizer", NO_OPTIMIZER, "optimizer.step()"),
    ],
)
def test_what_was_not_prepared_is_said_once_with_the_line(found: Cases, name: str, text: str, line: str) -> None:
    assert found[name] == [[(text, line)]] * 2


DIFFERENCES = {
    "gradient": "before step 1, the ranks have different gradients: weight is ",
    "rate": "before step 1, the ranks have different options: lr is 0.5 on rank 0, and 1 on rank 1",
    "weight": "before step 2, the ranks have different weights: bias is ",
    "none": "",
}


def differing(cause: str) -> list[tuple[str, str]]:
    """The warnings of three steps in which something isn't the same on both ranks, each with the code of its line."""
    accelerator = Accelerator()
    model, optimizer, _ = all_prepared(accelerator)
    rank = accelerator.process_index
    if cause == "rate":
        optimizer.param_groups[0]["lr"] = 0.5 + 0.5 * rank
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for _ in range(3):
            loss = model(torch.full((1, 3), 1.0 + rank)).sum()
            if cause == "gradient":
                for parameter, own in zip(
                    model.parameters(), torch.autograd.grad(loss, model.parameters()), strict=True
                ):
                    parameter.grad = own
            else:
                accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            if cause == "weight":
                nn.init.constant_(model.module.bias, rank)
    with open(__file__) as file:
        lines = file.read().splitlines()
    return [(str(each.message).partition(". So they")[0], lines[each.lineno - 1].strip()) for each in found]


@pytest.mark.parametrize("cause", DIFFERENCES)
def test_ranks_that_no_longer_train_one_model_are_named_once(found: Cases, cause: str) -> None:
    """The last rank to get there says so, whichever that is."""
    said = [each for by_rank in found[cause] for each in by_rank]
    assert len(said) == bool(DIFFERENCES[cause])
    for text, line in said:
        assert text.startswith(DIFFERENCES[cause])
        assert line == "optimizer.step()"


def plain(model: nn.Module, scheduled: bool = False) -> list[tuple[str, str]]:
    """The warnings of a loop that calls `loss.backward()`, each with the code of its line."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if scheduled:
        torch.optim.lr_scheduler.StepLR(optimizer, 1)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for _ in range(3):
            model(torch.ones(2, 3)).sum().backward()
            optimizer.step()
    with open(__file__) as file:
        lines = file.read().splitlines()
    ours = [each for each in found if "accelerator.prepare" in str(each.message)]
    return [(str(each.message).partition(":")[0], lines[each.lineno - 1].strip()) for each in ours]


def plain_loops() -> list[list[tuple[str, str]]]:
    Accelerator()
    register_optimizer_step_pre_hook(lambda *_: None)  # torch is in a loop over the hooks when the warning is due
    first = plain(nn.Linear(3, 1))
    Accelerator()
    scheduled = plain(nn.Linear(3, 1), scheduled=True)
    accelerator = Accelerator()
    prepared = plain(accelerator.prepare(nn.Linear(3, 1)))
    Accelerator()
    return [first, scheduled, prepared, plain(nn.parallel.DistributedDataParallel(nn.Linear(3, 1)))]


def test_a_loop_without_prepare_is_said_at_its_first_step_too() -> None:
    said = [(f"no model was prepared, {OWN_MODELS}", "optimizer.step()")]
    (found,) = set(map(str, Cases({"plain": (plain_loops,)})["plain"]))
    assert found == str([said, said, [], []])


def test_a_single_rank_needs_no_prepare() -> None:
    assert warned(parts) == []


def copied() -> list[bool]:
    """Whether copies of a prepared model, made before its forward pass, compute what it does."""
    accelerator = Accelerator()
    model = accelerator.prepare(nn.Linear(3, 1))
    copies = [pickle.loads(pickle.dumps(model)), copy.deepcopy(model)]
    return [torch.equal(each(torch.ones(1, 3)), model(torch.ones(1, 3))) for each in copies]


def test_a_model_can_be_pickled_before_its_first_forward_pass(found: Cases) -> None:
    assert found["copied"] == [[True, True]] * 2


def test_the_modes_of_an_optimizer_without_modes_change_nothing() -> None:
    accelerator = Accelerator()
    _, optimizer, _ = accelerator.prepare(*parts(accelerator))
    optimizer.train()
    optimizer.eval()


def test_a_step_without_gradients_is_said() -> None:
    accelerator = Accelerator()
    _, optimizer, _ = accelerator.prepare(*parts(accelerator))
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        optimizer.step()
        optimizer.step()
    (only,) = found
    assert only.filename == __file__
    assert "found no gradients, so it changes nothing: call accelerator.backward(loss)" in str(only.message)
