from __future__ import annotations

from pathlib import Path

import pytest
import torch

from notebook_accel.hardware import detect, intel


def test_only_a_torch_that_is_built_for_them_brings_them_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, vendor in enumerate(["0x8086", "0x1002"]):
        file = tmp_path / f"sys/class/drm/renderD{128 + number}/device/vendor"
        file.parent.mkdir(parents=True)
        file.write_text(f"{vendor}\n")
    assert (intel.count(tmp_path), intel.count(tmp_path / "nowhere")) == (1, 0)
    monkeypatch.setattr(intel, "count", lambda: 1)
    monkeypatch.setattr(torch.version, "cuda", None)
    assert detect({}).hidden_gpus == ""  # as on most laptops
    monkeypatch.setattr(torch.version, "xpu", "20250101")
    assert detect({}).hidden_gpus == "notebook-accel has no support for Intel's"
