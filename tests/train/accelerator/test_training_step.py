"""What one step does: when gradients are exchanged, optimizers step and schedulers follow."""

import copy
import logging
import logging.handlers
import pickle
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from notebook_accel import (
    Accelerator,
    DataLoaderConfiguration,
    DistributedDataParallelKwargs,
    FullyShardedDataParallelPlugin,
    GradientAccumulationPlugin,
    GradientState,
)
from notebook_accel.errors import ConfigurationError
from notebook_accel.train.steps import scheduler as scheduler_module
from notebook_accel.train.steps.optimizer import AcceleratedOptimizer
from notebook_accel.train.steps.scheduler import AcceleratedScheduler
from notebook_accel.train.tensors.shards import full_tensor
from tests.train.conftest import Cases


def parts(samples: int = 10, batch: int = 2) -> tuple[Any, ...]:
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    data = TensorDataset(torch.randn(samples, 3), torch.randn(samples, 1))
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5**step)
    return model, optimizer, DataLoader(data, batch_size=batch), scheduler


def synced(accelerator: Accelerator) -> list[bool]:
    """For each batch of an epoch, whether it ended in a step."""
    model, optimizer, loader, _ = accelerator.prepare(*parts())
    found = []
    for inputs, targets in loader:
        with accelerator.accumulate(model):
            before = model.weight.detach().clone()
            accelerator.backward(nn.functional.mse_loss(model(inputs), targets))
            optimizer.step()
            stepped = not torch.equal(before, model.weight)
            optimizer.zero_grad()
            assert (model.weight.grad is None) == stepped == accelerator.sync_gradients
        found.append(stepped)
    return found


@pytest.mark.parametrize(
    ("plugin", "steps"),
    [
        ({"num_steps": 1}, [True] * 5),
        ({"num_steps": 2}, [False, True, False, True, True]),
        ({"num_steps": 4}, [False, False, False, True, True]),
        ({"num_steps": 4, "sync_with_dataloader": False}, [False, False, False, True, False]),
    ],
)
def test_a_step_is_due_every_so_many_batches_and_at_the_last(plugin: dict[str, Any], steps: list[bool]) -> None:
    assert synced(Accelerator(gradient_accumulation_plugin=GradientAccumulationPlugin(**plugin))) == steps


def test_the_last_batch_restarts_the_count() -> None:
    accelerator = Accelerator(gradient_accumulation_steps=4)
    assert synced(accelerator) == [False, False, False, True, True]
    assert accelerator.step == 0
    model, loader = accelerator._models[0], accelerator._dataloaders[0]
    for _ in loader:
        with accelerator.accumulate(model):
            pass
        break
    assert (accelerator.step, accelerator.sync_gradients) == (1, False)


def test_the_loss_is_divided_by_all_accumulation_steps_even_at_the_last_batch() -> None:
    accelerator = Accelerator(gradient_accumulation_steps=4)
    weight = accelerator.prepare(nn.Linear(1, 1, bias=False)).weight
    accelerator.backward(weight.sum())
    assert weight.grad.item() == 0.25


def test_steps_can_be_set_later() -> None:
    accelerator = Accelerator()
    accelerator.gradient_accumulation_steps = 2
    assert accelerator.gradient_accumulation_steps == GradientState().num_steps == 2
    accelerator.sync_gradients = False
    assert not GradientState().sync_gradients


def test_an_optimizer_does_nothing_while_gradients_add_up() -> None:
    accelerator = Accelerator()
    model, optimizer = accelerator.prepare(*parts()[:2])
    model.weight.grad = torch.ones_like(model.weight)
    before = model.weight.detach().clone()
    accelerator.sync_gradients = False
    optimizer.step()
    optimizer.zero_grad()
    assert torch.equal(before, model.weight)
    assert model.weight.grad is not None
    accelerator.sync_gradients = True
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
    assert not torch.equal(before, model.weight)
    assert model.weight.grad.abs().sum() == 0


def test_an_optimizer_is_one_and_looks_like_the_users() -> None:
    accelerator = Accelerator()
    model, raw = parts()[:2]
    _, optimizer = accelerator.prepare(model, raw)
    assert isinstance(optimizer, torch.optim.Optimizer)
    assert optimizer.param_groups is raw.param_groups
    assert optimizer.state is raw.state
    assert optimizer.defaults is raw.defaults
    optimizer.load_state_dict(optimizer.state_dict())
    optimizer.add_param_group({"params": [nn.Parameter(torch.ones(1))], "lr": 3.0})
    assert raw.param_groups[1]["lr"] == 3.0
    assert torch.optim.lr_scheduler.StepLR(optimizer, 1).optimizer is optimizer


class Overflow(torch.amp.GradScaler):
    """Scales on the CPU, where fp16 itself is refused; its gradients overflow when told so."""

    def __init__(self) -> None:
        super().__init__("cpu", init_scale=4.0)


@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.AdamW])
@pytest.mark.parametrize("fused", [False, True])
def test_a_step_that_overflowed_is_noticed(make: Any, fused: bool) -> None:
    parameter = nn.Parameter(torch.ones(2))
    scaler = Overflow()
    optimizer = AcceleratedOptimizer(make([parameter], lr=0.1, fused=fused), scaler=scaler)
    scheduler = AcceleratedScheduler(torch.optim.lr_scheduler.StepLR(optimizer.optimizer, 1), optimizer)
    for overflows in (False, True, False):
        before, rate = parameter.detach().clone(), scheduler.get_last_lr()
        scaler.scale(parameter.sum() * (float("inf") if overflows else 1.0)).backward()
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        assert optimizer.step_was_skipped == overflows
        assert torch.equal(before, parameter) == overflows
        assert (scheduler.get_last_lr() == rate) == overflows


def test_an_optimizer_with_a_scaler_pickles_and_still_notices() -> None:
    parameter = nn.Parameter(torch.ones(2))
    optimizer = AcceleratedOptimizer(torch.optim.SGD([parameter], lr=0.1), scaler=Overflow())
    torch.optim.lr_scheduler.StepLR(optimizer.optimizer, 1)
    for again in (pickle.loads(pickle.dumps(optimizer)), copy.deepcopy(optimizer)):
        (own,) = again.param_groups[0]["params"]
        again.scaler.scale(own.sum() * float("inf")).backward()
        again.step()
        assert again.step_was_skipped
    assert not optimizer.step_was_skipped


def rates(split: bool, accumulation: int) -> list[float]:
    accelerator = Accelerator(
        gradient_accumulation_steps=accumulation, dataloader_config=DataLoaderConfiguration(split_batches=split)
    )
    model, optimizer, loader, scheduler = accelerator.prepare(*parts(16, 4))
    found = []
    for inputs, targets in loader:
        with accelerator.accumulate(model):
            accelerator.backward(nn.functional.mse_loss(model(inputs), targets))
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        found.append(scheduler.get_last_lr()[0])
    return found


RATES = [(False, 1, [2, 4]), (True, 1, [1, 2, 3, 4]), (False, 2, [0, 2]), (True, 2, [0, 1, 1, 2])]


@pytest.mark.parametrize(("split", "accumulation", "expected"), RATES)
def test_a_scheduler_steps_once_for_each_rank_that_had_a_batch(
    split: bool, accumulation: int, expected: list[int], on_two: Cases
) -> None:
    assert on_two[rates, split, accumulation] == [[0.5**step for step in expected]] * 2


@pytest.mark.parametrize("processes", [1, 2])
def test_a_scheduler_with_an_end_does_not_go_beyond_it(processes: int) -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
    end = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1.0, total_steps=5)
    scheduler = AcceleratedScheduler(end, AcceleratedOptimizer(optimizer), processes=processes)
    for _ in range(7):
        optimizer.step()
        scheduler.step()
    assert scheduler.last_epoch == 5


def test_a_scheduler_that_takes_a_metric_steps_once_for_each_metric() -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=1.0)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=1)
    scheduler = AcceleratedScheduler(plateau, AcceleratedOptimizer(optimizer), processes=2)
    for sync_gradients, expected in [(True, 1.0), (True, 1.0), (False, 1.0), (True, 0.5)]:
        scheduler.gradient_state.sync_gradients = sync_gradients
        scheduler.step(1.0)
        assert scheduler.get_last_lr() == [expected]


def by_epoch() -> list[str]:
    """What is said of a scheduler that is stepped after each batch, and of one that is stepped after each epoch."""
    kept = logging.handlers.BufferingHandler(100)
    logging.getLogger(scheduler_module.__name__).addHandler(kept)
    accelerator = Accelerator()
    model, optimizer, loader, scheduler = accelerator.prepare(*parts())
    each_epoch = accelerator.prepare(torch.optim.lr_scheduler.StepLR(optimizer.optimizer, 1))
    for _ in range(2):
        for inputs, _targets in loader:
            accelerator.backward(model(inputs).sum())
            optimizer.step()
            scheduler.step()
        each_epoch.step()
    return [record.getMessage().partition(". ")[0] for record in kept.buffer]


def test_a_scheduler_that_seems_to_count_epochs_is_named_once(on_two: Cases) -> None:
    said = "StepLR.step() was called outside of the loop over a prepared loader"
    assert on_two[(by_epoch,)] == [[said], []]


def test_a_scheduler_can_go_its_own_way() -> None:
    accelerator = Accelerator(step_scheduler_with_optimizer=False)
    *_, scheduler = accelerator.prepare(*parts())
    accelerator.sync_gradients = False
    scheduler.scheduler.optimizer.step()
    scheduler.step()
    assert scheduler.get_last_lr() == [0.5]


def gradients(number: int) -> list[tuple[float, bool]]:
    """What a rank's gradient is after each of two backward passes, with several models."""
    accelerator = Accelerator(gradient_accumulation_steps=2)
    models = [nn.Linear(1, 1, bias=False) for _ in range(number)]
    prepared = [accelerator.prepare(model) for model in models]
    found = []
    for _ in range(2):
        with accelerator.accumulate(*prepared):
            inputs = torch.full((1, 1), 1.0 + accelerator.process_index)
            accelerator.backward(sum(model(inputs).sum() for model in prepared))
        found.append(([model.weight.grad.item() for model in models], accelerator.sync_gradients))
    return found


@pytest.mark.parametrize("number", [1, 3])
def test_gradients_stay_on_their_rank_until_a_step_is_due(number: int, on_two: Cases) -> None:
    first, second = on_two[gradients, number]
    assert first == [([0.5] * number, False), ([1.5] * number, True)]
    assert second == [([1.0] * number, False), ([1.5] * number, True)]


def adversaries(how: str) -> tuple[list[bool], list[float]]:
    """Which blocks of two models end in a step, and their weights after four batches."""
    accelerator = Accelerator(gradient_accumulation_steps=2)
    plain = [nn.Linear(1, 1, bias=False) for _ in range(2)]
    for model in plain:
        nn.init.ones_(model.weight)
    optimizers = [torch.optim.SGD(model.parameters(), 0.1) for model in plain]
    data = DataLoader(torch.arange(1.0, 9.0)[:, None], batch_size=1)
    one, other, *steps, loader = accelerator.prepare(*plain, *optimizers, data)
    ends = []

    def train(model: nn.Module, optimizer: Any, inputs: torch.Tensor) -> None:
        accelerator.backward(model(inputs).sum())
        optimizer.step()
        optimizer.zero_grad()
        ends.append(accelerator.sync_gradients)

    for inputs in loader:
        if how == "together":
            with accelerator.accumulate(one, other):
                train(one, steps[0], inputs)
                train(other, steps[1], inputs)
        elif how == "nested":
            with accelerator.accumulate(one), accelerator.accumulate(other):
                train(one, steps[0], inputs)
                train(other, steps[1], inputs)
        else:
            with accelerator.accumulate(one):
                train(one, steps[0], inputs)
            with accelerator.accumulate(other):
                train(other, steps[1], inputs)
    return ends, [model.weight.item() for model in plain]


@pytest.mark.parametrize("how", ["together", "nested", "in turn"])
def test_models_that_share_a_batch_accumulate_the_same_batches(how: str, on_two: Cases) -> None:
    """As those of a GAN: https://github.com/huggingface/accelerate/pull/1708."""
    first, second = on_two[adversaries, how]
    assert first == second == ([False, False, True, True] * 2, [pytest.approx(1 - 0.1 * 36 / 4)] * 2)


def test_blocks_for_parts_of_the_last_batch_are_noticed() -> None:
    """https://github.com/huggingface/accelerate/issues/1847."""
    accelerator = Accelerator(gradient_accumulation_steps=2)
    model, loader = accelerator.prepare(nn.Linear(1, 1), DataLoader(torch.ones(4, 1), batch_size=2))
    other = accelerator.prepare(nn.Linear(1, 1))
    for batch in loader:
        with accelerator.accumulate(model):
            pass
        with accelerator.accumulate(other):
            pass
        if loader.end_of_dataloader:
            with pytest.warns(UserWarning, match=r"num_steps=2, sync_with_dataloader=False\) to Accelerator"):
                accelerator.accumulate(model)
        assert len(batch) == 2


class Half(nn.Module):
    """A model of which the loss depends on one of two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = nn.Linear(1, 1), nn.Linear(1, 1)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.used(inputs)


def half_averaged() -> tuple[str, list[float]]:
    """The error of a step after the only backward pass, and the weights after it."""
    accelerator = Accelerator()
    torch.manual_seed(0)
    model, whole = Half(), nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    of_whole = torch.optim.SGD(whole.parameters(), 0.1)
    prepared, whole, optimizer, of_whole = accelerator.prepare(model, whole, optimizer, of_whole)
    inputs = torch.full((1, 1), 1.0 + accelerator.process_index)
    accelerator.backward(prepared(inputs).sum())
    with pytest.raises(ConfigurationError) as caught:
        optimizer.step()
    accelerator.backward(whole(inputs).sum())
    of_whole.step()
    return str(caught.value), [each.item() for each in (*model.parameters(), *whole.parameters())]


def test_a_step_with_gradients_that_are_not_averaged_is_refused(on_two: Cases) -> None:
    """https://github.com/pytorch/pytorch/issues/128949."""
    first, second = on_two[(half_averaged,)]
    assert first == second
    assert "2 of 4, such as unused.weight, have none, so after optimizer.step() the ranks would have diff" in first[0]


def evaluated(accelerator: Accelerator, model: Any, optimizer: Any, loss_of: Any, inputs: torch.Tensor) -> torch.Tensor:
    """A closure of an optimizer that computes the loss several times in each step."""
    optimizer.zero_grad()
    loss: torch.Tensor = loss_of(model(inputs))
    accelerator.backward(loss)
    return loss


def unusual(how: str) -> list[float]:
    """The weights of a model after a loop that isn't the usual one: on two ranks as on one."""
    options_of_ddp = {"static graph": {"static_graph": True}, "gradient penalty": {"find_unused_parameters": True}}
    accelerator = Accelerator(
        gradient_accumulation_steps=2 if how == "static graph" else 1,
        kwargs_handlers=[DistributedDataParallelKwargs(**options_of_ddp.get(how, {}))],
    )
    torch.manual_seed(0)
    own = nn.Sequential(nn.Linear(3, 2), nn.Tanh(), nn.Linear(2, 1)).double()
    data = TensorDataset(torch.randn(16, 3, dtype=torch.double), torch.randn(16, 1, dtype=torch.double))
    kind = torch.optim.LBFGS if how == "closure" else torch.optim.SGD
    options = {"max_iter": 3, "line_search_fn": "strong_wolfe"} if how == "closure" else {}
    loader = DataLoader(data, batch_size=4 // accelerator.num_processes)
    model, optimizer, loader = accelerator.prepare(own, kind(own.parameters(), lr=0.1, **options), loader)

    for number, batch in enumerate(loader):
        inputs = batch[0]
        loss_of = partial(nn.functional.mse_loss, target=batch[1])
        if how == "closure":
            optimizer.step(partial(evaluated, accelerator, model, optimizer, loss_of, inputs))
            continue
        with accelerator.accumulate(model):
            if how == "past the wrapper":
                accelerator.backward(loss_of(own(inputs) if number % 2 else model(inputs)))
            elif how == "two passes of one call":
                outputs = model(inputs)
                accelerator.backward(loss_of(outputs), retain_graph=True)
                accelerator.backward(outputs.abs().mean())
            elif how == "gradient penalty":  # which doesn't depend on the last layer's bias
                accelerator.backward(loss_of(model(inputs)))
                inputs = inputs.requires_grad_()
                gradient = torch.autograd.grad(model(inputs).sum(), inputs, create_graph=True)[0]
                accelerator.backward((gradient.norm(dim=1) - 1).square().mean())
            else:
                losses = [loss_of(model(inputs)), loss_of(model(2 * inputs))]
                for loss in losses if how == "two losses" else [sum(losses)]:
                    accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
    return [each.item() for parameter in own.parameters() for each in parameter.flatten()]


UNUSUAL = ["past the wrapper", "two losses", "two passes of one call", "static graph", "closure", "gradient penalty"]


@pytest.mark.parametrize("how", UNUSUAL)
def test_gradients_are_averaged_in_loops_that_are_not_the_usual_one(how: str, on_two: Cases) -> None:
    """https://github.com/huggingface/trl/issues/7245, https://github.com/huggingface/accelerate/issues/3679."""
    first, second = on_two[unusual, how]
    assert first == second == pytest.approx(unusual(how), abs=1e-9)


def test_a_later_accelerator_says_that_it_changes_the_accumulation(caplog: pytest.LogCaptureFixture) -> None:
    first = Accelerator(gradient_accumulation_steps=2)
    Accelerator(gradient_accumulation_steps=2)
    assert not caplog.records
    Accelerator()
    assert "from now on over 1 instead of 2, also those that were created before" in caplog.text
    assert first.gradient_accumulation_steps == 1


def frozen() -> list[float]:
    """The weights of a model that is not trained, and that each rank makes itself."""
    accelerator = Accelerator()
    torch.manual_seed(accelerator.process_index)
    model = accelerator.prepare(nn.Linear(2, 2).requires_grad_(False))
    return [*model.weight.flatten().tolist(), *model.bias.tolist()]


def test_a_model_that_is_not_trained_is_the_same_on_all_ranks(on_two: Cases) -> None:
    torch.manual_seed(0)
    model = nn.Linear(2, 2)
    assert on_two[(frozen,)] == [[*model.weight.flatten().tolist(), *model.bias.tolist()]] * 2


def held_back(each_batch: bool) -> list[float]:
    plugin = GradientAccumulationPlugin(num_steps=2, sync_each_batch=each_batch)
    accelerator = Accelerator(gradient_accumulation_plugin=plugin)
    model = accelerator.prepare(nn.Linear(1, 1, bias=False))
    inputs = torch.full((1, 1), 2.0 * accelerator.process_index)
    found = []
    with accelerator.accumulate(model):
        accelerator.backward(model(inputs).sum())
    found.append(model.module.weight.grad.item())
    model.module.weight.grad = None
    with accelerator.no_sync(model):
        accelerator.backward(model(inputs).sum())
    found.append(model.module.weight.grad.item())
    model.module.weight.grad = None
    with accelerator.no_sync(model):
        loss = model(inputs).sum()
    with accelerator.trigger_sync_in_backward(model):
        accelerator.backward(loss)
    return [*found, model.module.weight.grad.item()]


def nested(sharded: bool) -> list[bool]:
    """Whether the gradients of this rank have been averaged, after blocks within blocks without synchronization."""
    accelerator = Accelerator(
        gradient_accumulation_steps=2, fsdp_plugin=FullyShardedDataParallelPlugin() if sharded else None
    )
    model = accelerator.prepare(nn.Linear(2, 1, bias=False))

    def averages() -> bool:
        model.zero_grad()
        accelerator.backward(model(torch.full((1, 2), 1.0 + accelerator.process_index)).sum())
        gradient = next(iter(model.parameters())).grad  # with FSDP2, `None` until it is averaged
        return gradient is not None and len(accelerator.gather(full_tensor(gradient)).unique()) == 1

    found = []
    with accelerator.no_sync(model):
        with accelerator.accumulate(model, model):
            found.append(averages())
        with accelerator.no_sync(model):
            found.append(averages())
        found.append(averages())
        with accelerator.accumulate(model):
            found.append(averages())
    found.append(averages())
    return found


@pytest.mark.parametrize("sharded", [False, True])
def test_the_inner_of_two_blocks_without_synchronization_leaves_it_off(sharded: bool, on_two: Cases) -> None:
    assert on_two[nested, sharded] == [[False, False, False, False, True]] * 2


@pytest.mark.parametrize("each_batch", [False, True])
def test_exchange_can_be_put_off_and_forced(each_batch: bool, on_two: Cases) -> None:
    first, second = on_two[held_back, each_batch]
    assert first == ([0.5, 0.0, 0.5] if each_batch else [0.0, 0.0, 0.5])
    assert second == ([0.5, 1.0, 0.5] if each_batch else [1.0, 1.0, 0.5])


def test_clipping_gives_the_norm_before() -> None:
    accelerator = Accelerator()
    model = accelerator.prepare(nn.Linear(2, 1, bias=False))
    model.weight.grad = torch.tensor([[3.0, 4.0]])
    assert accelerator.clip_grad_norm_(model.parameters(), 1.0).item() == 5
    torch.testing.assert_close(model.weight.grad, torch.tensor([[0.6, 0.8]]))
    accelerator.clip_grad_value_(model.parameters(), 0.7)
    torch.testing.assert_close(model.weight.grad, torch.tensor([[0.6, 0.7]]))


def test_clipping_measures_gradients_without_the_scale_of_fp16(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Accelerator, "scaler", Overflow())  # which a GPU has under fp16, and the CPU never
    accelerator = Accelerator()
    for clip in (
        lambda weights: accelerator.clip_grad_norm_(weights, 1.0),
        lambda weights: accelerator.clip_grad_value_(weights, 0.5),
    ):
        net = nn.Linear(2, 1, bias=False)
        model, optimizer = accelerator.prepare(net, torch.optim.SGD(net.parameters(), lr=1.0))
        before = net.weight.detach().clone()
        accelerator.backward(model(torch.tensor([[3.0, 4.0]])).sum())
        assert net.weight.grad.tolist() == [[12.0, 16.0]]
        norm = clip(model.parameters())
        assert norm is None or norm.item() == 5
        optimizer.step()
        torch.testing.assert_close(before - net.weight, torch.tensor([[0.5, 0.5]] if norm is None else [[0.6, 0.8]]))
        accelerator.free_memory()


def triggered() -> list[bool]:
    accelerator = Accelerator()
    found = [accelerator.check_trigger()]
    if accelerator.process_index == 1:
        accelerator.set_trigger()
    return [*found, accelerator.check_trigger(), accelerator.check_trigger()]


@pytest.fixture(scope="module")
def on_two() -> Cases:
    """What two ranks do in these tests; each case is named by its call."""
    calls: list[tuple[Any, ...]] = [
        *((rates, split, accumulation) for split, accumulation, _ in RATES),
        *((gradients, number) for number in (1, 3)),
        *((held_back, each_batch) for each_batch in (False, True)),
        *((adversaries, how) for how in ("together", "nested", "in turn")),
        (half_averaged,),
        *((unusual, how) for how in UNUSUAL),
        *((nested, sharded) for sharded in (False, True)),
        (by_epoch,),
        (frozen,),
        (triggered,),
    ]
    return Cases({call: call for call in calls})


def test_a_trigger_on_one_rank_is_seen_on_all(on_two: Cases) -> None:
    assert on_two[(triggered,)] == [[False, True, False]] * 2


def test_a_model_that_was_moved_is_missed() -> None:
    accelerator = Accelerator()
    model = accelerator.prepare(parts()[0])
    loss = model(torch.ones(1, 3)).sum()
    model.to("meta")
    with pytest.raises(ConfigurationError, match="was moved from cpu to meta"):
        accelerator.accumulate(model)
    with pytest.raises(ConfigurationError, match="was moved from cpu to meta"):
        accelerator.backward(loss)
