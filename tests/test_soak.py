"""A short form of `scripts/soak`: processes of resumable training runs are killed, and nothing is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import map_soak
from tests.soak import Soak


@pytest.mark.nightly  # `tests/train/test_epochs.py` and `tests/kernel/test_resume_magic.py` kill each of them once
def test_trainings_whose_processes_are_killed_end_in_the_same_bits_and_leave_nothing(tmp_path: Path) -> None:
    """Starts a process that launches, and another one when it is killed; the fork server of each imports torch.

    Other victims are left to `scripts/soak`.
    """
    report = Soak(tmp_path, seed=1, victims=("driver", "rank")).run(2)
    assert report.problems == [], (tmp_path / "log").read_text()
    assert report.kills == {"driver": 1, "rank": 1}
    assert report.launches > report.runs


@pytest.mark.nightly  # `tests/kernel/test_map.py` kills a rank once, and `test_map_work.py` 10,000 that it simulates
def test_maps_whose_processes_are_killed_end_with_one_value_for_each_item(tmp_path: Path) -> None:
    """Calls with thousands of items, on ranks that are killed several times a second."""
    report = map_soak.soak(tmp_path, seed=4, kills=10)
    assert report.problems == []
    assert report.kills.total() == 10
