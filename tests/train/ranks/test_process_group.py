"""Which device a process takes that no launch has started, with what torch would report on other machines."""

from __future__ import annotations

import pytest
import torch

from notebook_accel.train.ranks import process_group
from notebook_accel.train.ranks.environment import Environment


@pytest.mark.parametrize(
    ("there", "cpu", "found"),
    [(None, False, "cpu"), ("mps", False, "mps"), ("mps", True, "cpu"), ("xpu", False, "cpu"), ("hpu", False, "cpu")],
)
def test_a_process_takes_the_accelerator_that_torch_has_if_ranks_run_on_it(
    there: str | None, cpu: bool, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported = None if there is None else torch.device(there)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available: reported)
    assert process_group.join(Environment(), cpu, {}).device.type == found
