"""The energy that the devices of a rank use while a call runs."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from notebook_accel.events import EnergyUsed, Event

if TYPE_CHECKING:
    from notebook_accel.hardware.energy import EnergyMeter

_DELAY = 1.0
"""Seconds until the drivers are asked for the first time. Most calls have ended before."""
_INTERVAL = 5.0
"""Seconds between two readings."""


class Energy:
    """Samples the counters of the rank's GPU and of its machine's processors, from a second after a call began.

    Args:
        open_meter: Opens the drivers' libraries.
    """

    def __init__(self, open_meter: Callable[[], EnergyMeter] | None = None) -> None:
        self._open_meter = open_meter or _of_this_rank
        self._meter: EnergyMeter | None = None
        self._began: float | None = None
        """When the first reading of this call was."""
        self._due: float | None = None
        self._lock = threading.Lock()

    def sample(self, now: float) -> list[Event]:
        """An event if a reading is due. Call it only while a call runs."""
        if self._due is None:
            self._due = now + _DELAY
        if now < self._due:
            return []
        with self._lock:
            if self._began is not None:
                self._due = now + _INTERVAL
                return self._read(now)
            if self._meter is None:
                self._meter = self._open_meter()
            self._meter.begin()
            self._began = now if self._meter.counts else None
            self._due = now + _INTERVAL if self._meter.counts else float("inf")
        return []

    def on_call_end(self, now: float) -> list[Event]:
        """The last reading of the call, on its own thread."""
        with self._lock:
            found = [] if self._began is None else self._read(now)
            self._began = None
            if self._due != float("inf"):  # nothing can be measured here
                self._due = None
        return found

    def _read(self, now: float) -> list[Event]:
        assert self._meter is not None
        assert self._began is not None
        return [EnergyUsed(*self._meter.read(), round(now - self._began, 3))]


def _of_this_rank() -> EnergyMeter:
    from notebook_accel import hardware  # only long calls need them
    from notebook_accel.hardware.energy import EnergyMeter

    gpus = hardware.detect().gpus if os.environ.get("NOTEBOOK_ACCEL_DEVICE") == "cuda" else ()
    return EnergyMeter(gpus[int(os.environ.get("LOCAL_RANK", "0")) % len(gpus)].uuid if gpus else "")
