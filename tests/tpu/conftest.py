"""What needs torch_xla. `scripts/test-tpu` runs this in an environment of its own; elsewhere it is left out."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from notebook_accel.hardware import tpus

_HERE = Path(__file__).parent


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leaves all of it out where there is no torch_xla, without a word for each test."""
    return True if collection_path != _HERE and tpus.Machine().version("torch_xla") is None else None


@pytest.fixture(scope="session", autouse=True)
def on_the_cpu() -> Iterator[None]:
    """torch_xla computes on the CPU, whatever the machine has; kernels and commands inherit this."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PJRT_DEVICE", "CPU")
        patch.delenv("CPU_NUM_DEVICES", raising=False)
        yield
