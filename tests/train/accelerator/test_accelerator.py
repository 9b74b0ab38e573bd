"""The surface that Accelerate's users know, what `prepare` accepts and refuses, and what it gives back."""

import inspect
import os
import pickle
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import accelerate
import accelerate.utils
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import notebook_accel
from notebook_accel import (
    Accelerator,
    AORecipeKwargs,
    DataLoaderConfiguration,
    DDPCommunicationHookType,
    DistributedDataParallelKwargs,
    FullyShardedDataParallelPlugin,
    GradientAccumulationPlugin,
    GradScalerKwargs,
    InitProcessGroupKwargs,
    ParallelismConfig,
    ProjectConfiguration,
    RankError,
    events,
)
from notebook_accel.errors import ConfigurationError
from notebook_accel.train.ranks import state
from tests.train.conftest import Cases, Ranks

PROPERTIES = [
    "device",
    "distributed_type",
    "num_processes",
    "process_index",
    "local_process_index",
    "is_main_process",
    "is_local_main_process",
    "mixed_precision",
    "sync_gradients",
    "gradient_accumulation_steps",
    "is_last_process",
    "use_distributed",
    "project_dir",
    "logging_dir",
    "save_iteration",
    "optimizer_step_was_skipped",
    "split_batches",
    "dispatch_batches",
    "even_batches",
    "use_seedable_sampler",
    "non_blocking",
    "use_stateful_dataloader",
    "should_save_model",
    "multi_device",
    "is_fsdp2",
]
METHODS = [
    "prepare",
    "backward",
    "accumulate",
    "clip_grad_norm_",
    "gather",
    "gather_for_metrics",
    "reduce",
    "unwrap_model",
    "wait_for_everyone",
    "print",
    "save_state",
    "load_state",
    "save_model",
    "autocast",
    "free_memory",
    "end_training",
    "split_between_processes",
    "main_process_first",
    "local_main_process_first",
    "on_main_process",
    "on_local_main_process",
    "on_last_process",
    "on_process",
    "on_local_process",
    "no_sync",
    "pad_across_processes",
    "clip_grad_value_",
    "prepare_model",
    "prepare_data_loader",
    "prepare_optimizer",
    "prepare_scheduler",
    "skip_first_batches",
    "register_for_checkpointing",
    "get_state_dict",
    "save",
    "init_trackers",
    "log",
    "get_tracker",
    "set_trigger",
    "check_trigger",
    "profile",
    "clear",
    "join_uneven_inputs",
    "unscale_gradients",
    "register_save_state_pre_hook",
    "register_load_state_pre_hook",
    "verify_device_map",
]
ATTRIBUTES = [
    "state",
    "gradient_state",
    "scaler",
    "step",
    "trackers",
    "device_placement",
    "step_scheduler_with_optimizer",
    "rng_types",
    "ddp_handler",
    "scaler_handler",
    "init_handler",
    "autocast_handler",
    "profile_handler",
    "ao_recipe_handler",
    "deepspeed_plugin",
    "parallelism_config",
    "torch_device_mesh",
    "is_composable_parallelism_enabled",
    "native_amp",
]
HELPERS = [
    "set_seed",
    "find_executable_batch_size",
    "gather",
    "gather_object",
    "reduce",
    "broadcast",
    "broadcast_object_list",
    "pad_across_processes",
    "prepare_data_loader",
    "skip_first_batches",
    "send_to_device",
    "concatenate",
    "find_batch_size",
    "synchronize_rng_states",
]
OPTIONS = [
    "ProjectConfiguration",
    "DataLoaderConfiguration",
    "GradientAccumulationPlugin",
    "DistributedDataParallelKwargs",
    "GradScalerKwargs",
    "AutocastKwargs",
    "InitProcessGroupKwargs",
    "ProfileKwargs",
    "TorchDynamoPlugin",
]


MISSING = "there is no such field"
DIFFERING: dict[str, dict[str, Any]] = {
    "InitProcessGroupKwargs": {"backend": None, "timeout": None},  # the launch's backend, and torch's time
    "TorchDynamoPlugin": {"backend": None, "mode": None, "fullgraph": None, "use_regional_compilation": None},
}
"""Defaults of ours that are not Accelerate's."""


def parameters(function: Any) -> list[tuple[str, Any]]:
    """Names and defaults of what can be given by position."""
    given = inspect.signature(function).parameters.values()
    return [
        (each.name, each.default)
        for each in given
        if each.kind is each.POSITIONAL_OR_KEYWORD and each.name not in ("self",)
    ]


@pytest.mark.parametrize("name", METHODS)
def test_a_method_takes_the_arguments_of_accelerates(name: str) -> None:
    ours, original = getattr(Accelerator, name), getattr(accelerate.Accelerator, name)
    if name in ("init_trackers", "log"):  # Accelerate's signatures are hidden behind a decorator
        assert parameters(ours)[0][0] == {"init_trackers": "project_name", "log": "values"}[name]
        return
    theirs = [(each, None if each == "device_placement" else default) for each, default in parameters(original)]
    assert parameters(ours)[: len(theirs)] == theirs


def test_an_accelerator_takes_the_arguments_of_accelerates() -> None:
    theirs = dict(parameters(accelerate.Accelerator))
    ours = dict(parameters(Accelerator))
    theirs["split_batches"] = None  # a sentinel of Accelerate's own
    assert list(ours) == list(theirs)
    assert ours == theirs


@pytest.mark.parametrize("name", HELPERS)
def test_a_helper_takes_the_arguments_of_accelerates(name: str) -> None:
    theirs = getattr(accelerate.utils, name, None) or getattr(accelerate.data_loader, name)
    names = [each for each, _ in parameters(theirs)]
    assert [each for each, _ in parameters(getattr(notebook_accel, name))][: len(names)] == names


@pytest.mark.parametrize("name", OPTIONS)
def test_options_have_accelerates_names_and_defaults(name: str) -> None:
    def values(options: Any) -> dict[str, Any]:
        return {field: getattr(value, "value", value) for field, value in vars(options).items()}

    theirs = values(getattr(accelerate.utils, name)()) | DIFFERING.get(name, {})
    ours = values(getattr(notebook_accel, name)())
    assert {field: ours.get(field, MISSING) for field in theirs} == theirs


@pytest.mark.parametrize("name", [*PROPERTIES, *ATTRIBUTES])
def test_every_property_of_accelerates_is_here(name: str) -> None:
    ours = getattr(Accelerator(cpu=True), name)
    theirs = getattr(accelerate.Accelerator(cpu=True), name)
    if name in ("state", "gradient_state"):
        assert type(ours).__name__ == type(theirs).__name__
    else:
        assert ours == theirs


def parts() -> tuple[Any, ...]:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.AdamW(model.parameters())
    loader = DataLoader(TensorDataset(torch.randn(4, 2), torch.randn(4, 1)), batch_size=2)
    return model, optimizer, loader, torch.optim.lr_scheduler.StepLR(optimizer, 1)


@pytest.mark.smoke
def test_objects_come_back_in_their_order_whatever_it_is() -> None:
    model, optimizer, loader, scheduler = parts()
    other = object()
    found = Accelerator().prepare(scheduler, other, loader, optimizer, model)
    assert [type(each).__name__ for each in found] == [
        "AcceleratedScheduler", "object", "DataLoaderShard", "AcceleratedOptimizer", "Linear",
    ]  # fmt: skip
    assert found[1] is other
    assert found[4] is model
    assert found[0].optimizers == [found[3]]


def test_handlers_are_attributes_under_accelerates_names() -> None:
    ddp, group = DistributedDataParallelKwargs(static_graph=True), InitProcessGroupKwargs(timeout=timedelta(seconds=9))
    accelerator = Accelerator(kwargs_handlers=[ddp, group])
    assert (accelerator.ddp_handler, accelerator.init_handler, accelerator.scaler_handler) == (ddp, group, None)
    assert ddp.to_dict()["static_graph"] is True
    assert ddp.to_dict()["comm_state_option"] is not ddp.comm_state_option


def test_prepared_objects_say_that_they_are() -> None:
    assert all(each._is_accelerate_prepared for each in Accelerator().prepare(*parts()))


def test_one_object_comes_back_bare() -> None:
    model, *_ = parts()
    assert Accelerator().prepare(model) is model
    assert Accelerator().prepare() == ()


def test_preparing_twice_wraps_once() -> None:
    accelerator = Accelerator()
    given = parts()
    once = accelerator.prepare(*given)
    assert all(mine is theirs for mine, theirs in zip(accelerator.prepare(*once), once, strict=True))
    again = accelerator.prepare(given[0], given[1], given[3])
    assert all(mine is theirs for mine, theirs in zip(again, (once[0], once[1], once[3]), strict=True))
    assert [len(each) for each in (accelerator._models, accelerator._optimizers, accelerator._schedulers)] == [1, 1, 1]


def test_everything_can_be_prepared_by_itself() -> None:
    accelerator = Accelerator()
    model, optimizer, loader, scheduler = parts()
    assert accelerator.prepare_model(model) is model
    prepared = accelerator.prepare_optimizer(optimizer)
    assert accelerator.prepare_scheduler(scheduler).optimizers == [prepared]
    assert accelerator.prepare_data_loader(loader) in accelerator._dataloaders


def lonely_scheduler() -> Any:
    accelerator = Accelerator()
    model, _, _, scheduler = parts()
    return accelerator.prepare(model, scheduler)


@pytest.mark.parametrize("name", ["prepare", "prepare_optimizer"])
def test_an_optimizer_of_an_unprepared_model_trains_that_on_one_rank_and_is_named(name: str) -> None:
    accelerator = Accelerator()
    accelerator.prepare(parts()[0])
    apart = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(apart.parameters(), lr=0.1)
    with pytest.warns(UserWarning, match="none of the parameters of the SGD belongs to a prepared model") as named:
        optimizer = getattr(accelerator, name)(optimizer)
    assert [each.filename for each in named] == [__file__]
    before = apart.bias.item()
    accelerator.backward(apart(torch.ones(1, 2)).sum())
    optimizer.step()
    assert apart.bias.item() == pytest.approx(before - 0.1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Accelerator().prepare(list(parts()[:2])), "a list that holds a Linear, which would stay unprepared"),
        (lambda: Accelerator().prepare({"a": parts()[1]}), "pass its elements one by one"),
        (lonely_scheduler, "a scheduler was prepared without its optimizer"),
        (lambda: Accelerator().prepare(*parts(), device_placement=[True]), "1 entries for 4 objects"),
        (lambda: Accelerator(kwargs_handlers=[object()]), "which is not one of DistributedDataParallelKwargs"),  # type: ignore[list-item]
        (lambda: Accelerator(kwargs_handlers=[InitProcessGroupKwargs()] * 2), "two InitProcessGroupKwargs"),
        (
            lambda: Accelerator(split_batches=True, dataloader_config=DataLoaderConfiguration()),
            "contradicts dataloader_config",
        ),
        (
            lambda: Accelerator(
                gradient_accumulation_steps=2, gradient_accumulation_plugin=GradientAccumulationPlugin(num_steps=2)
            ),
            "were both given",
        ),
        (lambda: GradientAccumulationPlugin(num_steps=0), "whole number of batches, at least 1"),
        (lambda: Accelerator(gradient_accumulation_steps=2.5), "num_steps=2.5"),  # type: ignore[arg-type]
        (lambda: setattr(Accelerator(), "gradient_accumulation_steps", 0), "num_steps=0"),
        (lambda: Accelerator(rng_types=["cpu"]), "rng_types='cpu' must be one of torch, cuda, generator"),
        (lambda: Accelerator(dynamo_backend="inductr").prepare(parts()[0]), "inductr is not available: choose from"),
        (lambda: Accelerator().skip_first_batches(parts()[2], -1), "0 or more"),
        (
            lambda: Accelerator(project_dir="a", project_config=ProjectConfiguration(project_dir="b")),
            "contradicts project_config",
        ),
        (lambda: DistributedDataParallelKwargs(comm_wrapper=DDPCommunicationHookType.POWER_SGD), "is not a wrapper"),
        (lambda: DistributedDataParallelKwargs(comm_state_option={"a": 1}), "comm_state_option has no effect"),
    ],
)
def test_what_would_only_fail_later_fails_at_once(make: Any, message: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        make()
    assert message in str(refused.value)


@pytest.mark.parametrize("options", [GradScalerKwargs(), AORecipeKwargs()])
def test_options_for_another_precision_are_said_to_have_no_effect(
    options: Any, caplog: pytest.LogCaptureFixture
) -> None:
    Accelerator(cpu=True, mixed_precision="bf16", kwargs_handlers=[options])
    (message,) = caplog.messages
    assert f"{type(options).__name__} has no effect with mixed_precision='bf16'" in message


def partly_foreign(frozen: bool, apart: bool) -> list[float]:
    accelerator = Accelerator()
    body, head = nn.Linear(2, 2), nn.Linear(2, 1).requires_grad_(not frozen)
    optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.1)
    if not apart:
        head = accelerator.prepare(head)
    body, optimizer = accelerator.prepare(body, optimizer)
    accelerator.backward(head(body(torch.full((1, 2), float(accelerator.process_index)))).sum())
    optimizer.step()
    return [parameter.detach().sum().item() for parameter in body.parameters()]


DRIFTLESS = [(True, True), (False, False)]
"""Whether the rest of the parameters is frozen, and whether it is in no prepared model."""


def test_an_optimizer_with_more_than_the_models_parameters_is_refused_where_ranks_would_drift_apart(
    ranks: Ranks, on_two: Cases
) -> None:
    with pytest.raises(RankError, match="don't belong to any prepared model") as failed:
        ranks(partly_foreign, False, True)
    assert "of the 4 parameters of the SGD, 2 (of shape (1, 2), (1,))" in str(failed.value.__cause__)
    assert partly_foreign(False, True)  # alone, there is nobody to drift apart from
    for frozen, apart in DRIFTLESS:
        first, second = on_two[partly_foreign, frozen, apart]
        assert first == second


def test_an_accelerator_survives_pickling() -> None:
    accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=3)
    accelerator.prepare(*parts())
    accelerator.step = 2
    again = pickle.loads(pickle.dumps(accelerator))
    assert (again.mixed_precision, again.step, again.gradient_accumulation_steps) == ("bf16", 2, 3)
    assert len(again._models) == len(again._optimizers) == 1
    assert again.state is accelerator.state


def pickled() -> list[Any]:
    found = []
    for plugin in (None, FullyShardedDataParallelPlugin()):
        state.AcceleratorState._reset_state()
        again = pickle.loads(pickle.dumps(Accelerator(fsdp_plugin=plugin)))
        found.append((again.num_processes, again.distributed_type.value))
    return found


def test_so_does_one_on_several_ranks(on_two: Cases) -> None:
    assert on_two[(pickled,)] == [[(2, "MULTI_CPU"), (2, "FSDP")]] * 2


def test_memory_is_given_back() -> None:
    accelerator = Accelerator()
    model, optimizer, *_ = accelerator.prepare(*parts())
    assert accelerator.free_memory(model, optimizer) == [None, None]
    kept = (accelerator._models, accelerator._optimizers, accelerator._schedulers, accelerator._dataloaders)
    assert not any(kept)


def test_a_model_for_evaluation_stays_whole_and_unknown() -> None:
    accelerator = Accelerator(mixed_precision="bf16")
    model = accelerator.prepare_model(nn.Linear(2, 1), evaluation_mode=True)
    assert accelerator._models == []
    assert model(torch.ones(1, 2)).dtype == torch.float32


def compressed(hook: str, wrapper: str) -> float:
    options = {"matrix_approximation_rank": 1, "start_powerSGD_iter": 2} if "sgd" in hook else {}
    handler = DistributedDataParallelKwargs(
        comm_hook=DDPCommunicationHookType(hook),
        comm_wrapper=DDPCommunicationHookType(wrapper),
        comm_state_option=options,
        bucket_cap_mb=1,
    )
    accelerator = Accelerator(kwargs_handlers=[handler])
    model = accelerator.prepare(nn.Linear(1, 1, bias=False))
    accelerator.backward(model(torch.full((1, 1), 1.0 + accelerator.process_index)).sum())
    return float(model.module.weight.grad.item())


COMPRESSIONS = [("fp16", "no"), ("no", "fp16"), ("power_sgd", "fp16")]


@pytest.mark.parametrize(("hook", "wrapper"), COMPRESSIONS)
def test_gradients_travel_compressed(hook: str, wrapper: str, on_two: Cases) -> None:
    assert on_two[compressed, hook, wrapper] == [1.5, 1.5]


def partly_used() -> list[float]:
    """Two steps, in which each rank uses another half of the model, and then both the same."""
    accelerator = Accelerator(kwargs_handlers=[DistributedDataParallelKwargs(find_unused_parameters=True)])
    halves = nn.ModuleList([nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)])

    class Half(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.halves = halves

        def forward(self, index: int) -> torch.Tensor:
            return self.halves[index](torch.ones(1, 1))

    model = accelerator.prepare(Half())
    for index in (accelerator.process_index, 0):
        accelerator.backward(model(index).sum())
    return [float(half.weight.grad.item()) for half in halves]


@pytest.fixture(scope="module")
def on_two() -> Cases:
    """What two ranks do in these tests; each case is named by its call."""
    calls: list[tuple[Any, ...]] = [
        *((partly_foreign, frozen, apart) for frozen, apart in DRIFTLESS),
        *((compressed, hook, wrapper) for hook, wrapper in COMPRESSIONS),
        (partly_used,),
        (pickled,),
    ]
    return Cases({call: call for call in calls})


def test_a_rank_may_leave_out_parameters_where_it_is_said(on_two: Cases) -> None:
    assert on_two[(partly_used,)] == [[1.5, 0.5]] * 2


def test_a_compression_that_gloo_does_not_have_is_refused(ranks: Ranks) -> None:
    with pytest.raises(RankError) as failed:
        ranks(compressed, "bf16", "no")
    assert isinstance(failed.value.__cause__, ConfigurationError)
    assert "only between GPUs with nccl" in str(failed.value.__cause__)


def afterwards(end: Callable[[Accelerator], None]) -> list[int]:
    first = Accelerator()
    before = first.num_processes
    end(first)
    second = Accelerator(mixed_precision="bf16")
    return [before, second.num_processes, int(second.reduce(torch.tensor(1)))]


@pytest.mark.parametrize(
    "end",
    [
        lambda accelerator: accelerator.end_training(),
        lambda accelerator: accelerator.state.destroy_process_group(),
        lambda accelerator: torch.distributed.destroy_process_group(),
    ],
    ids=["end_training", "state", "torch"],
)
def test_another_accelerator_can_follow_the_end_of_training(end: Any, ranks: Ranks) -> None:
    assert ranks(afterwards, end) == [[2, 2, 2]] * 2


def test_logged_numbers_are_emitted_as_events() -> None:
    received: list[events.Event] = []
    events.set_sink(received.append)
    try:
        Accelerator().log({"loss": torch.tensor(0.5), "note": "text"}, step=3)
    finally:
        events.set_sink(None)
    Accelerator().log({"loss": 0.1})
    assert [(event.values, event.step) for event in received if isinstance(event, events.Metrics)] == [
        ({"loss": 0.5}, 3)
    ]
    assert len(received) == 1


def test_the_job_hears_of_a_checkpoint_for_which_the_training_waits(tmp_path: Path) -> None:
    received: list[events.Event] = []
    events.set_sink(received.append)
    try:
        Accelerator().save_state(tmp_path / "state")
    finally:
        events.set_sink(None)
    assert [event.is_on for event in received if isinstance(event, events.Saving)] == [True, False]


def logged() -> None:
    Accelerator().log({"loss": 0.25}, step=1)


def test_the_notebook_sees_what_a_rank_logs() -> None:
    job = notebook_accel.notebook_launcher(logged, num_processes=2, device="cpu", block=False)
    job.result()
    assert job.ranks[0].metrics == {"loss": 0.25}


def heard_in_a_child() -> tuple[bool, int]:
    child = os.fork()
    if child == 0:
        os._exit(int(events.has_sink()))
    return events.has_sink(), os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_what_a_rank_forks_does_not_speak_for_it(ranks: Ranks) -> None:
    assert ranks(heard_in_a_child) == [(True, 0)] * 2


def test_without_fp8_no_library_computes_in_it() -> None:
    accelerator = Accelerator(cpu=True)
    assert accelerator.fp8_backend.value == accelerate.utils.dataclasses.FP8BackendType.NO.value
    assert not accelerator.has_fp8_handler
    assert not accelerator.has_lomo_optimizer
    for library in ("fp8", "ao", "te", "msamp"):
        assert getattr(accelerator, f"{library}_recipe_handler") is None


class Spread(nn.Linear):
    """As transformers loads a model with `device_map="auto"` on several devices."""

    def __init__(self) -> None:
        super().__init__(2, 2)
        self.hf_device_map = {"weight": 0, "bias": 1}


def test_a_model_that_is_spread_over_devices_trains_on_a_single_rank() -> None:
    accelerator = Accelerator(cpu=True)
    assert accelerator.verify_device_map(nn.Sequential(Spread()))
    assert not accelerator.verify_device_map(nn.Linear(2, 2))
    accelerator.prepare(Spread())


def test_a_model_that_is_spread_over_devices_is_refused_on_several_ranks(ranks: Ranks) -> None:
    with pytest.raises(RankError, match="the Spread was loaded with a device_map of several entries, such as 'auto'"):
        ranks(lambda: Accelerator().prepare(Spread()))


def test_there_are_no_stages_of_a_pipeline() -> None:
    assert Accelerator(cpu=True, parallelism_config=ParallelismConfig()).pipeline_parallel_rank == 0


def count_of(accelerator: Accelerator) -> int:
    return accelerator.num_processes


def test_an_accelerator_of_the_notebook_is_refused_by_several_ranks(ranks: Ranks) -> None:
    with pytest.raises(RankError, match=r"with num_processes=1, so its models would not be trained by these 2 ranks"):
        ranks(count_of, Accelerator(cpu=True))


def samples_of(loader: DataLoader[Any]) -> list[Any]:
    return [batch[0].tolist() for batch in loader]


def prepared_loader() -> DataLoader[Any]:
    return Accelerator().prepare_data_loader(DataLoader(TensorDataset(torch.arange(4)), batch_size=2))


def test_a_loader_of_the_notebook_is_refused_by_several_ranks(ranks: Ranks) -> None:
    with pytest.raises(RankError, match="with num_processes=1, so its samples would not be shared among these 2 ranks"):
        ranks(samples_of, prepared_loader())
    returned, _ = ranks(prepared_loader)
    assert samples_of(returned) == [[0, 1]]


def test_an_accelerator_can_be_returned_to_the_notebook_and_sent_again(ranks: Ranks) -> None:
    returned, _ = ranks(Accelerator)
    assert returned.num_processes == 1
    assert ranks(count_of, returned) == [2, 2]
