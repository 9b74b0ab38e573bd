import pickle
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo import register_backend

from notebook_accel import Accelerator, TorchDynamoPlugin
from notebook_accel.train.models import compiling
from tests.train.conftest import Ranks

slow_guards = pytest.mark.filterwarnings("ignore:Guards may run slower on Python 3.13.0")


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs + torch.relu(self.inner(inputs))


class Deep(nn.Module):
    """`torchs` says whether its blocks are torch's own, which the compiler skips by default."""

    def __init__(self, *, torchs: bool = False) -> None:
        super().__init__()
        self.embed = nn.Linear(2, 4)
        self.body = nn.Module()
        self.body.layers = nn.ModuleList([nn.Linear(4, 4) if torchs else Block() for _ in range(3)])

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = self.embed(inputs)
        for layer in self.body.layers:
            hidden = layer(hidden)
        return hidden


def compiled(model: nn.Module) -> list[str]:
    """The names of the modules that are compiled in place."""
    return [name for name, module in model.named_modules() if module._compiled_call_impl is not None]


def test_blocks_of_one_class_and_what_surrounds_them_are_compiled_separately() -> None:
    model = Deep()
    assert not compiling.has_compiled_regions(model)
    assert compiling.compile_regions(model, backend="eager") is model
    assert compiled(model) == ["embed", "body.layers.0", "body.layers.1", "body.layers.2"]
    assert compiling.has_compiled_regions(model)
    assert not compiling.is_compiled(model)


def regions_in_launch() -> list[bool]:
    accelerator = Accelerator()
    plain, deep = accelerator.prepare(nn.Linear(2, 2), compiling.compile_regions(Deep(), backend="eager"))
    whole = accelerator.prepare(nn.Linear(2, 2))
    whole.compile(backend="eager")
    return [compiling.has_compiled_regions(model) for model in (plain, deep, whole)]


def test_what_is_measured_in_a_launch_is_not_taken_for_compiled(ranks: Ranks) -> None:
    assert ranks(regions_in_launch) == [[False, True, True]] * 2


@pytest.mark.parametrize("model", [nn.Linear(2, 2), nn.ModuleList(), nn.ModuleList([nn.ReLU(), nn.Tanh()])], ids=repr)
def test_a_model_without_such_blocks_is_compiled_as_a_whole(model: nn.Module) -> None:
    assert compiled(compiling.compile_regions(model, backend="eager")) == [""]


@slow_guards
@pytest.mark.parametrize("torchs", [False, True])
def test_prepare_compiles_the_blocks_once_and_keeps_everything_else(torchs: bool) -> None:
    graphs = []

    def backend(graph: torch.fx.GraphModule, _: list[torch.Tensor]) -> Any:
        graphs.append(graph)
        return graph.forward

    register_backend(backend, name := f"counting_{torchs}".lower())
    accelerator = Accelerator(cpu=True, dynamo_plugin=TorchDynamoPlugin(name, use_regional_compilation=True))
    own, inputs = Deep(torchs=torchs), torch.ones(1, 2)
    names = [*own.state_dict()]
    with torch.no_grad():
        before = own(inputs)
    model = accelerator.prepare(own)
    assert model is own is accelerator.prepare(own) is accelerator.unwrap_model(model)
    assert [*model.state_dict()] == names
    with torch.no_grad():
        assert torch.equal(model(inputs), before)
    assert len(graphs) == 2  # that of the first layer, and that of all blocks
    assert compiled(pickle.loads(pickle.dumps(model))) == []


def test_a_model_without_blocks_is_wrapped_as_without_the_option() -> None:
    plugin = TorchDynamoPlugin("eager", use_regional_compilation=True)
    assert compiling.is_compiled(compiling.apply(nn.Linear(2, 2), plugin))
    assert "use_regional_compilation" not in plugin.to_kwargs()


@pytest.mark.parametrize(
    ("given", "backend", "warned"),
    [
        ({"mode": "max-autotune"}, "", "TorchDynamoPlugin(mode='max-autotune') has no effect without a backend"),
        ({"use_regional_compilation": True}, "", "TorchDynamoPlugin(use_regional_compilation=True) has no effect"),
        ({"mode": "default"}, "eager", ""),
        ({"mode": "default", "backend": "no"}, "", ""),
        ({"disable": True}, "", ""),
        ({}, "", ""),
    ],
)
def test_options_without_a_backend_are_said_to_have_no_effect(
    given: dict[str, Any], backend: str, warned: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("ACCELERATE_DYNAMO_BACKEND", backend)
    Accelerator(cpu=True, dynamo_plugin=TorchDynamoPlugin(**given))
    assert bool(caplog.messages) == bool(warned)
    assert warned in "".join(caplog.messages)
