"""Waits until the GPUs of a job are free: of this user's jobs before it, and of other processes' memory.

A job in line is recorded as one that waits. Once nothing is before it, it is recorded as one that doesn't, and looks
again: of two jobs that come at once, at least one finds the other. No lock keeps other users' processes away.
"""

from __future__ import annotations

import time
from collections.abc import Collection

from notebook_accel import hardware
from notebook_accel.events import DevicesAwaited
from notebook_accel.launch.driver.stop_policy import StopRequests
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.text import size
from notebook_accel.launch.journal.writing import Journal
from notebook_accel.launch.plan import conflicts
from notebook_accel.launch.show import console
from notebook_accel.launch.show.job_views import Views
from notebook_accel.rank_spans import counted

LOOK, _REFRESH = 1.0, 0.05
"""Seconds between two looks at the devices, and between two drawings of the views."""
_FREE = 1 << 30
"""Up to so many bytes in use, a device is free: drivers and desktops hold some."""


def join(job: Job) -> None:
    """Makes the job one that waits, before it is recorded."""
    job.apply(None, DevicesAwaited("for its devices"))


def wait(job: Job, journal: Journal, view: Views, requests: StopRequests) -> bool:
    """Waits; returns whether the job may start now, rather than being requested to stop."""
    due, has_said = 0.0, False
    while not requests.received:
        now = time.monotonic()
        if now >= due:
            due = now + LOOK
            what = _before(job)
            if not what:
                _record(job, journal, "")
                what = _before(job)
                if not what:
                    return True
            _record(job, journal, what)
            if not has_said:
                console.current.notice(f"{job.title} waits {what}")
                has_said = True
        view.refresh()
        time.sleep(_REFRESH)
    return False


def _record(job: Job, journal: Journal, what: str) -> None:
    is_other = bool(what) != bool(job.awaits)
    if what != job.awaits:
        job.apply(None, DevicesAwaited(what))
    if is_other:
        journal.begin()


def _before(job: Job) -> str:
    """What the job waits for, as `DevicesAwaited` has it; empty if its devices are free."""
    others = conflicts.before(job.launched)
    return f"for {others}" if others else _held(job.launched.devices)


def _held(devices: Collection[str]) -> str:
    used = {uuid: use.used for uuid, use in hardware.memory_use().items() if uuid in devices and use.used > _FREE}
    if not used:
        return ""
    numbers = {gpu.uuid: index for index, gpu in enumerate(hardware.detect().gpus)}
    uuid = next(iter(used))
    more = f" and {counted(len(used) - 1, 'other GPU')}" if len(used) > 1 else ""
    return f"for GPU {numbers.get(uuid, uuid)}, where processes hold {size(used[uuid])}{more}"
