"""Names that are Accelerate's own work without Accelerate's own state, and say what to install without Accelerate."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
from typing import Any

import accelerate.state
import pytest
import torch
from accelerate.logging import MultiProcessAdapter
from torch import nn

import notebook_accel
from notebook_accel import PartialState, exports, hooks
from notebook_accel.utils import modeling, offload

STATES = {"PartialState", "AcceleratorState", "Accelerator", "GradientState"}
STATELESS_CALLS = {"load_state_dict"}
"""Functions that use a state only in a call that they do not make here: a progress bar of the main process only."""
RESET = "_reset_state"


@pytest.fixture(autouse=True)
def without_accelerates_state() -> Iterator[None]:
    """After each call, Accelerate has no state in this process."""
    accelerate.state.AcceleratorState._reset_state(True)
    yield
    assert accelerate.state.PartialState._shared_state == {}
    assert accelerate.state.AcceleratorState._shared_state == {}


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


def codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from codes(each)


def functions(found: Any) -> Iterator[Any]:
    """The functions of Accelerate's that an object consists of."""
    if inspect.isclass(found):
        for kind in found.__mro__:
            if kind.__module__.startswith("accelerate"):
                yield from filter(inspect.isfunction, vars(kind).values())
    elif inspect.isfunction(found) and found.__module__.startswith("accelerate"):
        yield found


def states_used(found: Any, seen: set[int]) -> Iterator[str]:
    """The classes of Accelerate's state that an object names, and all that it calls."""
    for function in functions(found):
        if id(function) in seen or function.__name__ in STATELESS_CALLS:
            continue
        seen.add(id(function))
        for name in {name for code in codes(function.__code__) for name in code.co_names}:
            value = function.__globals__.get(name)
            if name in STATES or isinstance(value, MultiProcessAdapter):  # it asks the state for the rank
                yield f"{function.__qualname__} uses {name}"
            yield from states_used(value, seen)


@pytest.mark.parametrize("name", exports.of_accelerate())
def test_no_name_uses_accelerates_state(name: str) -> None:
    value = getattr(notebook_accel, name)
    if exports.of_accelerate()[name].startswith("accelerate."):
        assert [*states_used(value, set())] == []


def test_a_model_is_split_over_devices_and_gives_the_same(tmp_path: Path) -> None:
    whole, inputs = model(), torch.randn(3, 4)
    expected = whole(inputs)
    sizes = modeling.get_balanced_memory(whole, {"cpu": 10**6})
    found = notebook_accel.infer_auto_device_map(whole, {**sizes, "disk": 10**6})
    assert {*found.values()} == {"cpu"}
    split = notebook_accel.dispatch_model(
        model(), {"0": "cpu", "1": "cpu", "2": "disk"}, main_device="cpu", offload_dir=tmp_path
    )
    torch.testing.assert_close(split(inputs), expected)
    assert isinstance(split[2]._hf_hook, hooks.AlignDevicesHook)
    hooks.remove_hook_from_module(split, recurse=True)


def test_a_checkpoint_is_loaded_and_dispatched(tmp_path: Path) -> None:
    saved, inputs = model(), torch.randn(3, 4)
    torch.save(saved.state_dict(), tmp_path / "weights.bin")
    with notebook_accel.init_empty_weights():
        empty = model()
    loaded = notebook_accel.load_checkpoint_and_dispatch(empty, str(tmp_path / "weights.bin"), {"": "cpu"})
    torch.testing.assert_close(loaded(inputs), saved(inputs))


@pytest.mark.parametrize("name", ["cpu_offload", "disk_offload"])
def test_a_model_is_offloaded(name: str, tmp_path: Path) -> None:
    whole, inputs = model(), torch.randn(3, 4)
    where = {} if name == "cpu_offload" else {"offload_dir": str(tmp_path)}
    offloaded = getattr(notebook_accel, name)(model(), execution_device="cpu", **where)
    assert next(offloaded.parameters()).device.type == "meta"
    torch.testing.assert_close(offloaded(inputs), whole(inputs))


def test_the_weights_of_an_offloaded_model_are_saved(tmp_path: Path) -> None:
    offloaded = notebook_accel.cpu_offload(model(), execution_device="cpu")
    notebook_accel.Accelerator(cpu=True).save_model(offloaded, tmp_path)
    loaded = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    notebook_accel.load_checkpoint_in_model(loaded, tmp_path)
    torch.testing.assert_close(dict(loaded.state_dict()), dict(model().state_dict()))


def test_offloading_with_a_hook_uses_the_device_of_the_rank() -> None:
    moved, hook = notebook_accel.cpu_offload_with_hook(model())
    assert moved._hf_hook.execution_device == hooks.CpuOffload().execution_device == PartialState().device
    assert isinstance(hook, hooks.UserCpuOffloadHook)
    moved(torch.randn(3, 4))
    hook.offload()
    assert hooks.CpuOffload("meta").execution_device == "meta"


def test_weights_are_offloaded_to_a_folder(tmp_path: Path) -> None:
    offload.offload_state_dict(tmp_path, model().state_dict())
    torch.testing.assert_close(dict(offload.OffloadedWeightsLoader(save_folder=tmp_path)), dict(model().state_dict()))


def test_names_are_found_in_every_module_that_accelerate_has_them_in() -> None:
    ours = importlib.import_module("notebook_accel.big_modeling")
    assert ours.add_hook_to_module is hooks.add_hook_to_module is accelerate.hooks.add_hook_to_module
    assert notebook_accel.test_utils.RegressionModel is accelerate.test_utils.RegressionModel


WITHOUT = """
import sys
sys.modules["accelerate"] = None  # as if it were not installed
import notebook_accel
from notebook_accel import *
assert not hasattr(notebook_accel, "dispatch_model") and not hasattr(notebook_accel.hooks, "CpuOffload")
for line in ("from notebook_accel import dispatch_model", "from notebook_accel.hooks import CpuOffload"):
    try:
        exec(line)
    except notebook_accel.UnsupportedNameError as error:
        assert "pip install accelerate" in str(error), error
    else:
        raise AssertionError(line)
"""


@pytest.mark.parametrize("code", [WITHOUT, "from notebook_accel import *; assert 'accelerate' not in sys.modules"])
def test_accelerate_is_imported_only_for_its_names_and_named_where_it_is_missing(code: str) -> None:
    subprocess.run([sys.executable, "-c", f"import sys\n{code}"], check=True)
