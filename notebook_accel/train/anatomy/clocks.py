"""Which clock measures the steps of a rank: a row for each kind of device."""

from __future__ import annotations

from collections.abc import Callable

import torch

from notebook_accel import events, rank_local
from notebook_accel.events.emit import STEP_TIMES
from notebook_accel.train.anatomy.device_clock import DeviceClock
from notebook_accel.train.anatomy.step_clock import StepClock, current

CLOCKS: dict[str, Callable[[torch.device], StepClock]] = {"cpu": lambda device: StepClock(), "cuda": DeviceClock}
"""By the type of the device. On others, only a wait would show what a part takes, so nothing is measured there."""


def of_this_rank(device: torch.device) -> StepClock | None:
    """The clock of this rank; `None` outside a launch, and on devices that have none.

    Args:
        device: The rank's device.
    """
    if not events.has_sink() or device.type not in CLOCKS:
        return None
    found = current()
    if found is None or found.device != device.type:
        found = rank_local.space()[STEP_TIMES] = CLOCKS[device.type](device)
    return found
