"""The checks of `scripts/test-gpu`, which end in a table; without a GPU they run on two ranks of the CPU."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date

import pytest
import torch

from notebook_accel import hardware
from tests.kernel.conftest import Shared, failed, nothing_is_left, pytest_runtest_makereport, share
from tests.live_notebook import Notebook

__all__ = ["failed", "pytest_runtest_makereport"]

_MODULE = "tests/gpu/test_gpus.py"
_PRELUDE = """
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from notebook_accel.utils import set_seed

def make():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))

def data():
    generator = torch.Generator().manual_seed(1)
    inputs = torch.rand(512, 64, generator=generator)
    return TensorDataset(inputs, (inputs.sum(1) * 10 // 64).long())

def weights(model):
    return torch.cat([each.detach().float().cpu().flatten() for each in model.parameters()])
"""


@dataclass(frozen=True)
class Devices:
    """What the checks run on."""

    kind: str
    """`cuda` or `cpu`."""
    ranks: int
    backend: str


@pytest.fixture(scope="session")
def devices() -> Devices:
    count = torch.cuda.device_count()
    return Devices("cuda", count, "nccl") if count else Devices("cpu", 2, "gloo")


@pytest.fixture(scope="session")
def shared() -> Iterator[Shared]:
    yield from share()


@pytest.fixture
def notebook(shared: Shared, devices: Devices) -> Iterator[Notebook]:
    """A kernel in which names of the checks are defined; `device` is what the ranks run on, `ranks` their number."""
    found = shared.get()
    found.check(f"{_PRELUDE}\ndevice, ranks = {devices.kind!r}, {devices.ranks}")
    yield found
    nothing_is_left(found)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints what `docs/hardware.md` has room for."""
    rows = [
        (report.nodeid.partition("::")[2].removeprefix("test_").replace("_", " "), kind, report)
        for kind in ("passed", "failed", "skipped")
        for report in terminalreporter.stats.get(kind, ())
        if report.nodeid.startswith(_MODULE) and (report.when == "call" or kind == "skipped")
    ]
    if not rows or "gpu" not in terminalreporter.config.option.markexpr:
        return
    if not torch.cuda.is_available():
        terminalreporter.section("on two ranks of the CPU, which says nothing about GPUs")
        _write_rows(terminalreporter, rows)
        return
    found = hardware.detect()
    platform_of_torch = f"ROCm {torch.version.hip}" if torch.version.hip else f"CUDA {torch.version.cuda}"
    nccl = ".".join(map(str, torch.cuda.nccl.version()))  # type: ignore[no-untyped-call]
    terminalreporter.section("paste into docs/hardware.md, under 'What has been tested'")
    terminalreporter.write_line(
        f"#### {date.today()}: {', '.join(gpu.name for gpu in found.gpus)}\n\n"
        f"With torch {torch.__version__}, {platform_of_torch}, NCCL {nccl}, "
        f"Python {platform.python_version()}, Linux {platform.release()}\n"
    )
    _write_rows(terminalreporter, rows)


def _write_rows(terminalreporter: pytest.TerminalReporter, rows: Sequence[tuple[str, str, pytest.TestReport]]) -> None:
    terminalreporter.write_line("| check | result | seconds |\n|---|---|---|")
    for name, kind, report in rows:
        reason = f": {report.longrepr[2].removeprefix('Skipped: ')}" if kind == "skipped" else ""
        terminalreporter.write_line(f"| {name} | {kind}{reason} | {report.duration:.1f} |")
