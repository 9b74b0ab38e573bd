"""A keyword that a function does not have is answered with what to write instead."""

import inspect
import pickle
import re
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest
from torch.utils.data import DataLoader

from notebook_accel import (
    Accelerator,
    DataLoaderConfiguration,
    DistributedDataParallelKwargs,
    FullyShardedDataParallelPlugin,
    GradientAccumulationPlugin,
    debug_launcher,
    notebook_launcher,
    utils,
)
from notebook_accel.advice import names
from notebook_accel.data_loader import DataLoaderDispatcher, DataLoaderShard, SkipDataLoader
from notebook_accel.errors import NotebookAccelError, UnknownArgumentError
from notebook_accel.train.options.option_class import calls_with, option_classes


def train(lr: float, *, steps: int = 1) -> None:
    raise AssertionError((lr, steps))


LAUNCHES = {
    "num_proceses": "; did you mean num_processes?",
    "lr": ": it is a parameter of the function, so pass it in kwargs={'lr': ...}",
    "main_process_port": ": pass use_port",
    "gradient_accumulation_steps": ": set it with %accelerate --gradient-accumulation, or in the configuration file",
    "fsdp_offload_params": ": set fsdp_offload_params in the configuration file, or pass "
    "fsdp_plugin=FullyShardedDataParallelPlugin(...) to the Accelerator",
    "xyzzy": "",
}


@pytest.mark.parametrize("keyword", LAUNCHES)
def test_a_launch_says_what_to_write_instead(keyword: str) -> None:
    with pytest.raises(TypeError) as caught:
        notebook_launcher(train, (), **{keyword: 2})
    assert str(caught.value) == f"notebook_launcher() has no argument {keyword!r}{LAUNCHES[keyword]}"
    assert isinstance(caught.value, NotebookAccelError)


@pytest.mark.parametrize(
    ("keyword", "instead"),
    [
        ("num_proceses", "; did you mean num_processes?"),
        ("block", "Call notebook_launcher(..., device='cpu'), which has it"),
        ("lr", "there, it is a parameter of the function, so pass it in kwargs={'lr': ...}"),
    ],
)
def test_a_debugging_launch_leads_to_the_full_one(keyword: str, instead: str) -> None:
    with pytest.raises(TypeError) as caught:
        debug_launcher(train, **{keyword: 2})
    assert str(caught.value).endswith(instead)


ACCELERATORS: dict[str, tuple[Any, str]] = {
    "mixed_precison": ("bf16", "; did you mean mixed_precision?"),
    "even_batches": (False, ": pass dataloader_config=DataLoaderConfiguration(even_batches=False)"),
    "find_unused_parameters": (
        True,
        ": pass kwargs_handlers=[DistributedDataParallelKwargs(find_unused_parameters=True)]",
    ),
    "num_processes": (2, ": pass it to notebook_launcher"),
    "xyzzy": (1, ""),
}


def test_a_method_of_an_accelerator_says_which_argument_was_meant() -> None:
    with pytest.raises(UnknownArgumentError, match=r"load_state\(\) has no argument 'strickt'; did you mean strict\?"):
        Accelerator().load_state("x", strickt=True)  # type: ignore[call-arg]


@pytest.mark.parametrize("keyword", ACCELERATORS)
def test_an_accelerator_says_what_to_write_instead(keyword: str) -> None:
    value, instead = ACCELERATORS[keyword]
    with pytest.raises(TypeError) as caught:
        Accelerator(**{keyword: value})
    assert str(caught.value) == f"Accelerator() has no argument {keyword!r}{instead}"


OPTIONS: list[tuple[type[Any], str, Any, str]] = [
    (DistributedDataParallelKwargs, "find_unused_parameter", True, "; did you mean find_unused_parameters?"),
    (DataLoaderConfiguration, "total_limit", 2, ": pass project_config=ProjectConfiguration(total_limit=2) to the Acc"),
    (FullyShardedDataParallelPlugin, "fsdp_sharding_strategy", "FULL_SHARD", ": pass sharding_strategy"),
    (GradientAccumulationPlugin, "xyzzy", 1, ""),
]


@pytest.mark.parametrize(("kind", "keyword", "value", "instead"), OPTIONS)
def test_a_class_of_options_says_what_to_write_instead(
    kind: type[Any], keyword: str, value: object, instead: str
) -> None:
    with pytest.raises(UnknownArgumentError) as caught:
        kind(**{keyword: value})
    start = f"{kind.__name__}() has no argument {keyword!r}{instead}"
    assert str(caught.value).startswith(start)
    assert instead or str(caught.value) == start


OPTION_CLASSES = [
    each
    for each in (getattr(utils.dataclasses, name) for name in dir(utils.dataclasses))
    if is_dataclass(each) and each not in (utils.KwargsHandler, utils.TensorInformation)
]


@pytest.mark.parametrize("kind", OPTION_CLASSES)
def test_a_class_of_options_stays_a_dataclass(kind: type[Any]) -> None:
    assert kind in option_classes()
    assert [*inspect.signature(kind).parameters] == [each.name for each in fields(kind)]
    options = kind()
    assert vars(pickle.loads(pickle.dumps(options))) == vars(replace(options)) == vars(options)
    with pytest.raises(UnknownArgumentError):
        replace(options, xyzzy=1)


def test_each_argument_of_an_accelerator_is_explained_in_a_class_of_options() -> None:
    takes_options = r"deepspeed_plugins?|megatron_lm_plugin|project_dir|\w+_(?:plugin|config)"
    arguments = {each for each in inspect.signature(Accelerator).parameters if not re.fullmatch(takes_options, each)}
    also = {"gradient_accumulation_steps"}  # DeepSpeedPlugin has it, but the Accelerator is the place for it
    assert names("options of an Accelerator") - also == {each for each in arguments if not calls_with(each, None)}


LOADERS = [
    (DataLoaderShard, "batch_size", ": it wraps a DataLoader. Create DataLoader(dataset, batch_size=2, ...), and pass"),
    (SkipDataLoader, "skip_batches", ": prepare a DataLoader, and call skip_first_batches(loader, 2)"),
    (DataLoaderDispatcher, "devise", "; did you mean device?"),
]


@pytest.mark.parametrize(("kind", "keyword", "instead"), LOADERS)
def test_a_prepared_loader_says_what_to_write_instead(kind: type[Any], keyword: str, instead: str) -> None:
    with pytest.raises(TypeError) as caught:
        kind(DataLoader([1, 2]), **{keyword: 2})
    assert str(caught.value).startswith(f"{kind.__name__}() has no argument {keyword!r}{instead}")


@pytest.mark.parametrize("function", [notebook_launcher, Accelerator.__init__])
def test_signatures_stay_readable(function: Any) -> None:
    assert not [each for each in inspect.signature(function).parameters.values() if each.kind.name.startswith("VAR")]
