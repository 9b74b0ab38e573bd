"""What `%%accelerate` says of ranks that are alive and were started with other settings."""

from __future__ import annotations

from typing import Any

from notebook_accel.config import LaunchConfig
from notebook_accel.hardware import FixedProbe, detect
from notebook_accel.launch import engines
from notebook_accel.launch.plan import plan
from notebook_accel.launch.plan.plan import Plan
from notebook_accel.notebook.cells.changed_settings import differences


def planned(**settings: Any) -> Plan:
    return plan.make(LaunchConfig(**settings), detect({}, FixedProbe([])), engines.get("forkserver"))


def test_each_setting_that_differs_is_named_with_both_values() -> None:
    alive, now = planned(num_processes=2, mixed_precision="bf16"), planned(num_processes=3)
    assert differences(alive, now) == ["num_processes=2, not 3", "mixed_precision=bf16, not no"]
    assert differences(alive, alive) == []


def test_variables_that_differ_are_told_without_their_values() -> None:
    alive, now = planned(env={"TOKEN": "secret"}), planned(env={"TOKEN": "other"})
    assert differences(alive, now) == ["env"]
