"""A keyword that a function does not have is answered with what to write instead."""

import inspect
from typing import Any

import accelerate
import pytest
import torch

from notebook_accel import Accelerator, debug_launcher, load_checkpoint_in_model, notebook_launcher
from notebook_accel.data_loader import DataLoaderDispatcher, DataLoaderShard, SkipDataLoader
from notebook_accel.errors import NotebookAccelError


def train(lr: float, *, steps: int = 1) -> None:
    raise AssertionError((lr, steps))


LAUNCHES = {
    "num_proceses": "; did you mean num_processes?",
    "lr": ": it is a parameter of the function, so pass it in kwargs={'lr': ...}",
    "steps": ": it is a parameter of the function, so pass it in kwargs={'steps': ...}",
    "use_fp16": ": pass mixed_precision='fp16'",
    "use_cpu": ": pass device='cpu'",
    "num_machines": ": pass num_nodes",
    "main_process_port": ": pass use_port",
    "gpu_ids": ": pass gpus",
    "gradient_accumulation_steps": ": set it with %accelerate --gradient-accumulation, or in the configuration file",
    "fsdp_offload_params": ": set fsdp_offload_params in the configuration file, or pass "
    "fsdp_plugin=FullyShardedDataParallelPlugin(...) to the Accelerator",
    "fsdp_plugin": ": pass it to the Accelerator that the function creates",
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
    "logging_dir": ("logs", ": pass project_config=ProjectConfiguration(logging_dir='logs')"),
    "cpu_offload": (True, ": pass fsdp_plugin=FullyShardedDataParallelPlugin(cpu_offload=True)"),
    "find_unused_parameters": (
        True,
        ": pass kwargs_handlers=[DistributedDataParallelKwargs(find_unused_parameters=True)]",
    ),
    "fp16": (True, ": pass mixed_precision='fp16'"),
    "device": ("cuda", ": the launch chooses it. Pass device= to notebook_launcher, or cpu=True here"),
    "num_processes": (2, ": pass it to notebook_launcher"),
    "xyzzy": (1, ""),
}


@pytest.mark.parametrize("keyword", ACCELERATORS)
def test_an_accelerator_says_what_to_write_instead(keyword: str) -> None:
    value, instead = ACCELERATORS[keyword]
    with pytest.raises(TypeError) as caught:
        Accelerator(**{keyword: value})
    assert str(caught.value) == f"Accelerator() has no argument {keyword!r}{instead}"


LOADERS = [
    (DataLoaderShard, "batch_size", ": it wraps a DataLoader. Create DataLoader(dataset, batch_size=2, ...), and pass"),
    (DataLoaderDispatcher, "batch_size", ": it wraps a DataLoader. Create DataLoader(dataset, batch_size=2, ...), and"),
    (SkipDataLoader, "skip_batches", ": prepare a DataLoader, and call skip_first_batches(loader, 2)"),
    (DataLoaderShard, "devise", "; did you mean device?"),
]


@pytest.mark.parametrize(("kind", "keyword", "instead"), LOADERS)
def test_a_prepared_loader_says_what_to_write_instead(kind: type[Any], keyword: str, instead: str) -> None:
    with pytest.raises(TypeError) as caught:
        kind([1, 2], **{keyword: 2})
    assert str(caught.value).startswith(f"{kind.__name__}() has no argument {keyword!r}{instead}")


@pytest.mark.parametrize("keyword", [*inspect.signature(accelerate.load_checkpoint_in_model).parameters][2:])
def test_loading_weights_explains_each_argument_of_accelerates_that_it_lacks(keyword: str) -> None:
    if keyword == "strict":
        return
    with pytest.raises(NotebookAccelError, match="the weights are loaded into the model as it is"):
        load_checkpoint_in_model(torch.nn.Linear(1, 1), "nowhere", **{keyword: None})


@pytest.mark.parametrize("function", [notebook_launcher, Accelerator.__init__])
def test_signatures_stay_readable(function: Any) -> None:
    assert not [each for each in inspect.signature(function).parameters.values() if each.kind.name.startswith("VAR")]
