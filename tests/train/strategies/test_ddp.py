"""What `DistributedDataParallel` is called with on GPUs. There are none: the class and the state are fakes."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

from notebook_accel.train.options.plugins import DistributedDataParallelKwargs
from notebook_accel.train.strategies import ddp
from notebook_accel.train.strategies.base import Settings


class _Replica(torch.nn.Module):
    """Records what it is made with."""

    def __init__(self, module: torch.nn.Module, **arguments: Any) -> None:
        super().__init__()
        self.arguments = arguments
        self.hooks: list[dict[str, Any]] = []

    def register_comm_hook(self, **hook: Any) -> None:
        self.hooks.append(hook)


def _prepare(monkeypatch: pytest.MonkeyPatch, device: str, **options: Any) -> _Replica:
    monkeypatch.setattr(ddp, "DistributedDataParallel", _Replica)
    state: Any = SimpleNamespace(device=torch.device(device), backend="nccl" if device != "cpu" else "gloo")
    settings = Settings(ddp=DistributedDataParallelKwargs(**options))
    (model,) = ddp.DataParallel(state, settings).prepare([torch.nn.Linear(1, 1)], [])
    assert isinstance(model, _Replica)
    return model


@pytest.mark.parametrize(("device", "expected"), [("cuda:0", [0]), ("cuda:1", [1]), ("cpu", None)])
def test_a_replica_is_on_the_device_of_its_rank(
    monkeypatch: pytest.MonkeyPatch, device: str, expected: list[int] | None
) -> None:
    arguments = _prepare(monkeypatch, device).arguments
    assert arguments["device_ids"] == expected
    assert "output_device" not in arguments  # torch's default is the first of device_ids


def test_the_arguments_of_the_handler_reach_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = {"bucket_cap_mb": 7, "find_unused_parameters": True, "static_graph": True, "broadcast_buffers": False}
    arguments = _prepare(monkeypatch, "cuda:1", **chosen, gradient_as_bucket_view=True).arguments
    assert arguments == {"device_ids": [1], **chosen, "gradient_as_bucket_view": True}


def test_gradients_can_be_compressed_to_bf16_between_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    (hook,) = _prepare(monkeypatch, "cuda:1", comm_hook="bf16").hooks
    assert hook == {"state": None, "hook": default_hooks.bf16_compress_hook}


@pytest.mark.parametrize("name", ["device_ids", "output_device"])
def test_the_device_is_not_an_option(name: str) -> None:
    with pytest.raises(TypeError, match=name):
        DistributedDataParallelKwargs(**{name: [0]})
