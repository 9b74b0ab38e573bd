"""A file that the disk refuses."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from notebook_accel.train.checkpoints import serialization, weights

LARGE = {"weight": torch.zeros(100_000)}


@pytest.fixture
def small_files() -> Iterator[None]:
    """No file may be longer than 64 KiB, which is refused at the same place as by a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**16, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.usefixtures("small_files")
def test_the_error_says_why_the_disk_refuses_a_file(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="File too large"):
        serialization.write_safe(LARGE, tmp_path / "optimizer.bin", "the optimizer")
    with pytest.raises(OSError, match="File too large"):
        weights.write(LARGE, tmp_path / "model.bin", safe_serialization=False)
