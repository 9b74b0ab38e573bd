from __future__ import annotations

from pathlib import Path

import pytest
import torch

from notebook_accel.hardware import detect
from notebook_accel.hardware.intel import IntelProbe
from tests.hardware.fakes import FakeGpu, write_amd_files, write_intel_files
from tests.hardware.rows import change_row

B580 = FakeGpu("Arc B580", 12 << 30)


def test_only_a_torch_that_is_built_for_them_brings_them_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_intel_files(tmp_path, [B580])
    change_row(monkeypatch, "xpu", probe=lambda: IntelProbe(tmp_path))
    monkeypatch.setattr(torch.version, "cuda", None)
    assert detect({}).hidden_gpus == ""  # as on most laptops
    monkeypatch.setattr(torch.version, "xpu", "20250101")
    found = detect({})
    assert (found.hidden_gpus, found.kind) == ("notebook-accel has no support for Intel's", "cpu")


def test_one_in_a_processor_has_no_memory_of_its_own_and_other_vendors_are_left_out(tmp_path: Path) -> None:
    write_amd_files(tmp_path, [FakeGpu("AMD Instinct MI250X", 64 << 30)])
    (tmp_path / "sys/class/drm/renderD128/device/vendor").write_text("0x1002\n")
    assert IntelProbe(tmp_path).devices() == ()
    write_intel_files(tmp_path / "laptop", [B580], number="0x46a6")
    (tmp_path / "laptop/sys/class/drm/renderD128/device/tile0/physical_vram_size_bytes").unlink()
    [gpu] = IntelProbe(tmp_path / "laptop").devices()
    assert (gpu.name, gpu.uuid, gpu.total) == ("Intel GPU 0x46a6", "renderD128", 0)
