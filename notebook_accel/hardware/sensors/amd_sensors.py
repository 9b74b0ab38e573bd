"""Reads what AMD's driver measures: through amdsmi where ROCm has it, and otherwise from the driver's files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from notebook_accel.hardware.amd import AmdProbe
from notebook_accel.hardware.sensors import amd_files, amd_smi
from notebook_accel.hardware.sensors.gpu_readings import GpuReading


class AmdSensors:
    """Asks both for each GPU. Only the files say why a clock rate is reduced: amdsmi waits 100 ms for that.

    Args:
        root: The folder that contains `sys` and `usr`; tests replace it.
        library: Returns `amdsmi`, or a stand-in such as `FakeAmdSmi`; `None` if there is none.
    """

    def __init__(self, root: Path = Path("/"), library: Callable[[], Any] = amd_smi.installed) -> None:
        self._nodes = list(AmdProbe(root).nodes())
        self._smi = amd_smi.AmdSmi(library if self._nodes else lambda: None)

    def read(self) -> dict[str, GpuReading]:
        return {node.gpu.uuid: replace(amd_files.read(node), **self._smi.read(node.number)) for node in self._nodes}

    def close(self) -> None:
        self._nodes = []
        self._smi.close()
