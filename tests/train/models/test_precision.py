import copy
import dataclasses
import inspect
import pickle
from typing import Any

import pytest
import torch
from torch import nn

from notebook_accel import (
    Accelerator,
    AORecipeKwargs,
    AutocastKwargs,
    GradScalerKwargs,
    HardwareError,
    TorchDynamoPlugin,
)
from notebook_accel.errors import ConfigurationError
from notebook_accel.train.models import precision
from tests.train.conftest import Cases

slow_guards = pytest.mark.filterwarnings("ignore:Guards may run slower on Python 3.13.0")


class Net(nn.Module):
    """Remembers what it computed in, and returns what it is told to."""

    def __init__(self, shape: str = "tensor") -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)
        self.shape = shape
        self.computed: Any = None

    def forward(self, inputs: torch.Tensor, scale: float = 1.0) -> Any:
        found = self.layer(inputs) * scale
        self.computed = found.dtype
        return {"tensor": found, "dict": {"logits": found, "n": 3}, "tuple": (found, [found], found.long())}[self.shape]


def floats(outputs: Any) -> list[torch.dtype]:
    found: list[torch.dtype] = []
    precision.pytree.recursively_apply(lambda leaf: found.append(leaf.dtype), outputs)
    return found


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ("tensor", [torch.float32]),
        ("dict", [torch.float32]),
        ("tuple", [torch.float32, torch.float32, torch.int64]),
    ],
)
def test_a_model_computes_in_bf16_and_gives_back_float32(shape: str, expected: list[torch.dtype]) -> None:
    model = Accelerator(mixed_precision="bf16").prepare(Net(shape))
    outputs = model(torch.ones(1, 4))
    assert model.computed == torch.bfloat16
    assert floats(outputs) == expected
    assert type(outputs) in (torch.Tensor, dict, tuple)


def test_without_precision_nothing_stands_between() -> None:
    net = Net()
    accelerator = Accelerator()
    assert accelerator.prepare(net) is net
    assert "forward" not in net.__dict__
    assert accelerator.scaler is None
    with accelerator.autocast():
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32


def test_autocast_is_there_for_what_no_model_does() -> None:
    accelerator = Accelerator(mixed_precision="bf16")
    with accelerator.autocast():
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.bfloat16
    with accelerator.autocast(AutocastKwargs(enabled=False)):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32


@pytest.mark.parametrize("again", [lambda it: pickle.loads(pickle.dumps(it)), copy.deepcopy])
def test_a_prepared_model_can_be_copied(again: Any) -> None:
    accelerator = Accelerator(mixed_precision="bf16")
    model = accelerator.prepare(Net())
    other = again(model)
    other.layer.weight.data.zero_()
    other.layer.bias.data.fill_(1.0)
    assert other(torch.ones(1, 4)).tolist() == [[1.0, 1.0]]
    assert model(torch.ones(1, 4)).tolist() != [[1.0, 1.0]]
    assert other.computed == torch.bfloat16


def test_a_prepared_model_keeps_its_signature_and_its_class() -> None:
    net = Accelerator(mixed_precision="bf16").prepare(Net())
    assert type(net) is Net
    assert list(inspect.signature(net.forward).parameters) == ["inputs", "scale"]


def test_preparing_twice_is_preparing_once() -> None:
    accelerator = Accelerator(mixed_precision="bf16")
    net = Net()
    assert accelerator.prepare(net) is accelerator.prepare(net) is net
    assert accelerator._models == [net]
    assert net.forward.given is None


def test_a_forward_of_the_instances_own_is_kept() -> None:
    net = Net()
    net.forward = lambda inputs: net.layer(inputs) + 100  # type: ignore[method-assign,assignment]
    accelerator = Accelerator(mixed_precision="bf16")
    model = accelerator.prepare(net)
    assert model(torch.ones(1, 4)).min() > 50
    own = accelerator.unwrap_model(model, keep_fp32_wrapper=False)
    assert not isinstance(own.forward, precision.Forward)
    assert own(torch.ones(1, 4)).min() > 50


@slow_guards
@pytest.mark.parametrize("first", [True, False])
def test_models_are_compiled_before_or_after(first: bool) -> None:
    accelerator = Accelerator(mixed_precision="bf16")
    net = Net()
    net.computed = torch.bfloat16
    if first:
        model = accelerator.prepare(torch.compile(net, backend="eager"))
    else:
        model = torch.compile(accelerator.prepare(net), backend="eager")
    outputs = model(torch.ones(1, 4))
    assert outputs.dtype == torch.float32
    assert torch.equal(outputs, outputs.bfloat16().float())
    assert accelerator.unwrap_model(model, keep_torch_compile=False) is net
    assert type(accelerator.unwrap_model(model)).__name__ == "OptimizedModule"


@slow_guards
def test_models_are_compiled_on_request() -> None:
    accelerator = Accelerator(dynamo_plugin=TorchDynamoPlugin(backend="eager"))
    net = nn.Linear(2, 2)
    model = accelerator.prepare(net)
    assert type(model).__name__ == "OptimizedModule"
    assert accelerator.prepare(model) is model is accelerator.prepare(net)
    assert torch.equal(model(torch.ones(1, 2)), net(torch.ones(1, 2)))


def layers_of(first: bool) -> list[str]:
    accelerator = Accelerator(mixed_precision="bf16")
    net = Net()
    model = accelerator.prepare(torch.compile(net, backend="eager") if first else net)
    model = model if first else torch.compile(model, backend="eager")
    accelerator.backward(model(torch.ones(1, 4)).sum())
    inner = model._orig_mod
    again = pickle.loads(pickle.dumps(inner))
    own = accelerator.unwrap_model(model, keep_torch_compile=False)
    kept = accelerator.unwrap_model(model)
    return [
        *(type(each).__name__ for each in (model, inner, inner.module, inner.module.forward, again)),
        *(type(each).__name__ for each in (own, kept, kept._orig_mod, model._orig_mod)),
    ]


@pytest.fixture(scope="module")
def layers() -> Cases:
    return Cases({first: (layers_of, first) for first in (True, False)})


@pytest.mark.parametrize("first", [True, False])
def test_compile_comes_last_ddp_before_it_and_autocast_innermost(first: bool, layers: Cases) -> None:
    wrapped = ["OptimizedModule", "DistributedDataParallel", "Net", "Forward", "DistributedDataParallel"]
    unwrapped = ["Net", "OptimizedModule", "Net", "DistributedDataParallel"]
    assert layers[first] == [[*wrapped, *unwrapped]] * 2


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"mixed_precision": "fp16"}, ConfigurationError, "'fp16' needs a GPU, but this rank runs on the CPU"),
        ({"mixed_precision": "fp8"}, ConfigurationError, "use 'bf16'"),
        ({"mixed_precision": "half"}, ConfigurationError, "must be one of no, fp8, fp16, bf16"),
        (
            {"kwargs_handlers": [AORecipeKwargs(enable_fsdp_float8_all_gather=True)]},
            ConfigurationError,
            "has no effect without fsdp_plugin",
        ),
    ],
)
def test_what_the_device_cannot_do_is_said_at_once(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as refused:
        Accelerator(cpu=True, **options)
    assert message in str(refused.value)
    assert Accelerator(cpu=True, mixed_precision="bf16").mixed_precision == "bf16"  # as in the next cell


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_fp16_scales_on_a_gpu() -> None:
    accelerator = Accelerator(mixed_precision="fp16", kwargs_handlers=[GradScalerKwargs(init_scale=8.0)])
    model, optimizer = accelerator.prepare(net := Net(), torch.optim.AdamW(net.parameters()))
    loss = model(torch.ones(1, 4, device="cuda")).sum()
    accelerator.backward(loss * float("inf"))
    optimizer.step()
    assert model.computed == torch.float16
    assert accelerator.optimizer_step_was_skipped
    assert accelerator.scaler is not None
    assert accelerator.scaler.get_scale() == 4.0


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_fp8_converts_the_inner_layers_or_says_what_is_missing() -> None:
    pytest.importorskip("torchao")
    layers = nn.Sequential(*(nn.Linear(64, 64) for _ in range(3)))
    try:
        model = Accelerator(mixed_precision="fp8").prepare(layers)
    except HardwareError as refused:
        assert "cannot compute in fp8" in str(refused)  # noqa: PT017  # an older GPU
        return
    assert [type(each).__name__ for each in model] == ["Linear", "Float8Linear", "Linear"]
    assert model(torch.ones(16, 64, device="cuda")).dtype == torch.float32


def test_scripts_can_turn_autocast_off_before_they_prepare_a_model() -> None:
    accelerator = Accelerator(cpu=True, mixed_precision="bf16")
    assert accelerator.native_amp
    accelerator.native_amp = False
    model = accelerator.prepare(Net())
    model(torch.ones(1, 4))
    assert model.computed == torch.float32
    with accelerator.autocast():
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32
    with pytest.raises(ConfigurationError, match="native_amp=True has no effect on the models that are prepared"):
        accelerator.native_amp = True


def test_scripts_can_turn_autocast_on_without_a_precision() -> None:
    accelerator = Accelerator(cpu=True)
    assert not accelerator.native_amp
    accelerator.native_amp = True
    model = accelerator.prepare(Net())
    assert model(torch.ones(1, 4)).dtype == torch.float32
    assert model.computed == torch.bfloat16  # torch's default on the CPU


def test_handlers_say_what_differs_from_the_default() -> None:
    assert GradScalerKwargs(init_scale=2.0).to_kwargs() == {"init_scale": 2.0}
    assert dataclasses.asdict(AutocastKwargs()) == {"enabled": True, "cache_enabled": None}


def test_options_of_fp8_are_given_once() -> None:
    assert AORecipeKwargs(pad_inner_dim=True).config_fields() == {"pad_inner_dim": True}
    with pytest.raises(ConfigurationError, match="got config and pad_inner_dim: set pad_inner_dim in the config"):
        AORecipeKwargs(config=object(), pad_inner_dim=False)
