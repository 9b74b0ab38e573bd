import pytest
import torch
from torch import nn

from notebook_accel import init_empty_weights, init_on_device


def test_parameters_are_made_without_memory_and_buffers_with_values() -> None:
    with init_empty_weights():
        model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    assert all(parameter.is_meta for parameter in model.parameters())
    assert model[1].running_var.tolist() == [1.0, 1.0]
    assert not nn.Linear(1, 1).weight.is_meta


def test_buffers_are_left_out_too_if_asked() -> None:
    with init_empty_weights(include_buffers=True):
        model = nn.BatchNorm1d(2)
    assert model.running_mean is not None
    assert model.running_mean.is_meta


def test_an_error_in_the_block_ends_it() -> None:
    with pytest.raises(ZeroDivisionError), init_empty_weights():
        _ = 1 / 0
    assert not nn.Linear(1, 1).weight.is_meta


def test_parameters_keep_their_class_their_attributes_and_whether_they_are_trained() -> None:
    class Marked(nn.Parameter):
        pass

    parameter = Marked(torch.ones(2), requires_grad=False)
    parameter.kind = "special"  # type: ignore[attr-defined]
    module = nn.Module()
    with init_on_device("meta"):
        module.weight = parameter
        module.bias = None
    assert isinstance(module.weight, Marked)
    assert module.weight.is_meta
    assert (module.weight.kind, module.weight.requires_grad) == ("special", False)  # type: ignore[attr-defined]


def test_tied_parameters_stay_tied() -> None:
    with init_empty_weights():
        model = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
        model[1].weight = model[0].weight
    assert model[0].weight is model[1].weight


def test_an_empty_model_takes_the_weights_that_it_is_given() -> None:
    with init_empty_weights():
        model = nn.Linear(2, 1)
    state = {"weight": torch.ones(1, 2), "bias": torch.zeros(1)}
    model.load_state_dict(state, assign=True)
    assert model(torch.ones(1, 2)).item() == 2
