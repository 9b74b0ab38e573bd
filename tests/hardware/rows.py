"""Changes rows of the table of accelerators, for a machine that is not there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from notebook_accel import hardware


def change_row(monkeypatch: pytest.MonkeyPatch, name: str, **fields: Any) -> None:
    """Gives a row other fields until the end of the test."""
    rows = [replace(row, **fields) if row.name == name else row for row in hardware.ACCELERATORS]
    monkeypatch.setattr(hardware, "ACCELERATORS", tuple(rows))
