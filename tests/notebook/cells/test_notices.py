"""What is said of the ranks of cells."""

from __future__ import annotations

from typing import Any

from notebook_accel.config import LaunchConfig
from notebook_accel.hardware import FixedProbe, detect
from notebook_accel.launch import engines
from notebook_accel.launch.plan import plan
from notebook_accel.launch.plan.plan import Plan
from notebook_accel.notebook.cells import notices
from notebook_accel.notebook.cells.notices import differences


def planned(**settings: Any) -> Plan:
    return plan.make(LaunchConfig(**settings), detect({}, FixedProbe([])), engines.get("forkserver"))


def test_each_setting_that_differs_is_named_with_both_values() -> None:
    alive, now = planned(num_processes=2, mixed_precision="bf16"), planned(num_processes=3)
    assert differences(alive, now) == ["num_processes=2, not 3", "mixed_precision=bf16, not no"]
    assert differences(alive, alive) == []


def test_variables_that_differ_are_told_without_their_values() -> None:
    alive, now = planned(env={"TOKEN": "secret"}), planned(env={"TOKEN": "other"})
    assert differences(alive, now) == ["env"]


def test_one_rank_is_named_in_the_singular_and_several_in_the_plural() -> None:
    assert notices.unresponsive([1], "").startswith("Rank 1 does not respond")
    assert notices.unresponsive([0, 1], "").startswith("Ranks 0-1 do not respond")
    assert notices.gone([1], "") == "Rank 1 is gone. `%accelerate restart` starts new ranks."
    assert notices.gone([0, 2], "; x") == "Ranks 0,2 are gone. `%accelerate restart` starts new ranks; x."
    assert notices.still_busy([1], "").startswith("rank 1 is still busy with a cell that was stopped")
    assert "end them with" in notices.still_busy([0, 1], "")


def test_a_dead_rank_is_told_with_where_a_cell_can_run() -> None:
    assert notices.dead(1, "was killed by signal 9", [0, 2]) == (
        "rank 1 was killed by signal 9: `%accelerate restart` starts new ranks "
        "(`%%accelerate --ranks 0,2` still runs on the others)."
    )
    assert notices.dead(0, "ended with status 1", []) == (
        "rank 0 ended with status 1: `%accelerate restart` starts new ranks."
    )
