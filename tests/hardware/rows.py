"""Changes rows of the table of accelerators, for a machine that is not there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from notebook_accel import hardware
from notebook_accel.hardware import torch_build
from notebook_accel.hardware.nvidia import NvmlProbe
from tests.hardware.fakes import FakeGpu, FakeNvml


def change_row(monkeypatch: pytest.MonkeyPatch, name: str, **fields: Any) -> None:
    """Gives a row other fields until the end of the test."""
    rows = [replace(row, **fields) if row.name == name else row for row in hardware.ACCELERATORS]
    monkeypatch.setattr(hardware, "ACCELERATORS", tuple(rows))


def use_nvidia_gpus(monkeypatch: pytest.MonkeyPatch, *gpus: FakeGpu) -> FakeNvml:
    """Gives this machine NVIDIA GPUs, with a torch that is built for them. Returns their driver's library."""
    library = FakeNvml(gpus)
    change_row(monkeypatch, "cuda", probe=lambda: NvmlProbe(lambda: library))
    monkeypatch.setattr(torch_build, "platform", lambda: "CUDA")
    return library
