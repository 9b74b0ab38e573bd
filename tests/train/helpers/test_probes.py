"""Probes say what is so: of this machine, and of what the package can do."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType, SimpleNamespace

import accelerate.utils
import pytest
import torch

from notebook_accel import exports
from notebook_accel.train.helpers import probes

NEVER = {
    *("is_deepspeed_available", "is_lomo_available", "is_megatron_lm_available", "is_msamp_available"),
    *("is_pippy_available", "is_transformer_engine_available", "is_transformer_engine_mxfp8_available"),
}
"""For what an Accelerator cannot use, installed or not."""
DIFFERENT = {"is_fp16_available", "is_fp8_available", "is_rich_available"}
"""Accelerate's say that fp16 works on a CPU, fp8 wherever torchao is installed, and Rich counts if enabled."""
PROBES = [
    name
    for row in exports.TABLE
    if (row.module, row.accelerate) == ("train.helpers.probes", "utils.imports")
    for name in row.names
]


@pytest.mark.parametrize("name", PROBES)
def test_a_probe_answers_as_accelerates_where_it_says_what_is_so(name: str) -> None:
    answer = getattr(probes, name)()
    assert isinstance(answer, bool)
    theirs = getattr(accelerate.utils, name, None) or getattr(accelerate.utils.imports, name)
    if name in NEVER:
        assert answer is False
    elif name not in DIFFERENT:
        assert answer == bool(theirs())


def test_precisions_are_those_that_an_accelerator_takes_here() -> None:
    assert probes.is_bf16_available() or torch.cuda.is_available()
    assert probes.is_fp16_available() == (torch.cuda.is_available() or torch.backends.mps.is_available())


@pytest.mark.parametrize("has_device", [True, False])
def test_a_device_of_an_extension_counts_if_the_extension_finds_one(
    has_device: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    extension = ModuleType("torch_sdaa")
    extension.__spec__ = importlib.util.spec_from_loader("torch_sdaa", None)
    monkeypatch.setitem(sys.modules, "torch_sdaa", extension)
    monkeypatch.setattr(torch, "sdaa", SimpleNamespace(is_available=lambda: has_device), raising=False)
    assert probes.is_sdaa_available() is has_device


def test_the_backend_is_this_machines_device() -> None:
    kind, count, allocated = probes.get_backend()
    assert kind == ("cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu")
    assert count >= 1
    assert allocated() >= 0
