from pathlib import Path
from typing import ClassVar

import accelerate.utils
import pytest
import torch
from torch import nn

from notebook_accel import init_empty_weights
from notebook_accel.errors import ConfigurationError
from notebook_accel.train.helpers import module_tensors
from notebook_accel.train.helpers.module_tensors import set_module_tensor_to_device


def model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))


def test_tensors_are_listed_with_their_names() -> None:
    inner = [name for name, _ in module_tensors.named_module_tensors(model()[1])]
    assert inner == ["weight", "bias", "running_mean", "running_var", "num_batches_tracked"]
    names = [name for name, _ in module_tensors.named_module_tensors(model(), include_buffers=False, recurse=True)]
    assert names == ["0.weight", "0.bias", "1.weight", "1.bias"]


def test_buffers_outside_of_the_state_dict_can_be_left_out() -> None:
    outer = nn.Sequential(nn.Module())
    outer[0].register_buffer("cache", torch.ones(1), persistent=False)
    outer[0].register_buffer("kept", torch.ones(1))
    found = [name for name, _ in module_tensors.named_module_tensors(outer, True, True, remove_non_persistent=True)]
    assert found == ["0.kept"]


def test_a_value_fills_a_parameter_of_an_empty_model() -> None:
    with init_empty_weights():
        empty = model()
    set_module_tensor_to_device(empty, "0.weight", "cpu", value=torch.ones(3, 2, dtype=torch.float64))
    assert isinstance(empty[0].weight, nn.Parameter)
    assert empty[0].weight.dtype == torch.float32
    assert empty[0].weight.tolist() == [[1.0, 1.0]] * 3
    set_module_tensor_to_device(empty, "0.bias", "cpu", value=torch.ones(3), dtype="torch.bfloat16")
    assert empty[0].bias.dtype == torch.bfloat16
    set_module_tensor_to_device(empty, "1.running_mean", "cpu", value=torch.ones(3))
    assert empty[1].running_mean.tolist() == [1.0, 1.0, 1.0]


def test_a_tensor_moves_by_its_name() -> None:
    moved = model()
    set_module_tensor_to_device(moved, "0.weight", "meta")
    assert moved[0].weight.is_meta
    assert not moved[0].bias.is_meta


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("0.nothing", {}, "no parameter or buffer '0.nothing'"),
        ("5.weight", {}, "no parameter or buffer '5.weight'"),
        ("0.weight", {"value": torch.ones(1)}, r"has the shape \(3, 2\), but the value has \(1,\)"),
        ("0.weight", {}, "no value to move: pass value="),
        ("0.weight", {"value": torch.ones(3, 2), "dtype": "half16"}, "is not a type of torch"),
        ("0.weight", {"tied_params_map": {}}, "tied_params_map is not supported"),
    ],
)
def test_what_cannot_be_set_is_refused(name: str, options: dict[str, object], message: str) -> None:
    with init_empty_weights():
        empty = model()
    with pytest.raises(ConfigurationError, match=message):
        set_module_tensor_to_device(empty, name, "cpu", **options)  # type: ignore[arg-type]


def test_tied_parameters_are_found_and_tied_again() -> None:
    tied = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.Linear(2, 2)})
    tied["b"].weight = tied["a"].weight
    names = module_tensors.find_tied_parameters(tied)
    assert names == [["a.weight", "b.weight"]]
    tied["b"].weight = nn.Parameter(torch.zeros(2, 2))
    module_tensors.retie_parameters(tied, names)
    assert tied["a"].weight is tied["b"].weight
    assert module_tensors.id_tensor_storage(tied["a"].weight) == module_tensors.id_tensor_storage(tied["b"].weight)


def test_sizes_are_counted_for_each_module() -> None:
    sizes = module_tensors.compute_module_sizes(model())
    assert sizes["0"] == (6 + 3) * 4
    assert sizes["1"] == 4 * 3 * 4 + 8
    assert sizes[""] == sizes["0"] + sizes["1"]
    assert module_tensors.compute_module_sizes(model(), dtype="float16")["0"] == (6 + 3) * 2
    assert module_tensors.compute_module_sizes(model(), special_dtypes={"0.weight": torch.int8})["0.weight"] == 6


class Blocks(nn.Sequential):
    """A model whose inner `Sequential`s are not split."""

    _no_split_modules: ClassVar = ["Sequential"]


@pytest.mark.parametrize(
    "model",
    [
        nn.Linear(2, 3),
        nn.Identity(),
        nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)), nn.BatchNorm1d(3)),
        Blocks(nn.Linear(2, 3), nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))),
    ],
)
def test_the_largest_layer_is_that_of_accelerate(model: nn.Module) -> None:
    assert module_tensors.calculate_maximum_sizes(model) == accelerate.utils.calculate_maximum_sizes(model)


def test_a_file_is_read_to_devices_by_the_beginning_of_names(tmp_path: Path) -> None:
    torch.save({"a.x": torch.ones(1), "ab": torch.ones(1)}, tmp_path / "pytorch_model.bin")
    path = str(tmp_path / "pytorch_model.bin")
    assert {name: each.device.type for name, each in module_tensors.load_state_dict(path).items()} == {
        "a.x": "cpu",
        "ab": "cpu",
    }
    found = module_tensors.load_state_dict(path, device_map={"": "cpu", "a": "meta"})
    assert {name: each.device.type for name, each in found.items()} == {"a.x": "meta", "ab": "cpu"}
