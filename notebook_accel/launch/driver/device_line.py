"""Waits until GPUs for a job are free: of this user's jobs before it, and of other processes' memory.

A job in line is recorded as one that waits. Once enough GPUs are free, it is recorded as one that doesn't, and looks
again: of two jobs that come at once, at least one finds the other. No lock keeps other users' processes away.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from notebook_accel import hardware
from notebook_accel.events import DevicesAwaited
from notebook_accel.launch.driver.stop_policy import StopRequests
from notebook_accel.launch.engines.contract import Engine
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.text import size
from notebook_accel.launch.journal.writing import Journal
from notebook_accel.launch.plan import conflicts, plan
from notebook_accel.launch.plan.plan import Plan
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


class DeviceLine:
    """A job's place in the line for its GPUs: for certain ones, or for as many as it has ranks of several.

    Args:
        job: The job.
        journal: Records it.
        planned: Its plan.
        environ: The environment of the launch.
    """

    def __init__(self, job: Job, journal: Journal, planned: Plan, environ: Mapping[str, str]) -> None:
        self._job = job
        self._journal = journal
        self._plan = planned
        self._hardware = hardware.detect(environ)
        self._wanted = planned.device_ids
        self._count = min(planned.size, len(self._wanted))
        self._free: Sequence[str] = ()

    def wait(self, view: Views, requests: StopRequests) -> bool:
        """Waits; returns whether the job may start now, rather than being requested to stop."""
        due, has_said = 0.0, False
        while not requests.received:
            now = time.monotonic()
            if now >= due:
                due = now + LOOK
                what = self._look()
                if not what:
                    self._record("")
                    what = self._look()
                    if not what:
                        return True
                self._record(what)
                if not has_said:
                    console.current.notice(f"{self._job.title} waits {what}")
                    has_said = True
            view.refresh()
            time.sleep(_REFRESH)
        return False

    def plan_with_free(self, engine: Engine) -> Plan:
        """The plan with the GPUs that were free at the end of `wait`."""
        if self._count == len(self._wanted):
            return self._plan
        chosen = tuple(index for index, gpu in enumerate(self._hardware.gpus) if gpu.uuid in self._free)
        return plan.make(replace(self._plan.config, gpus=chosen[: self._count]), self._hardware, engine)

    def _record(self, what: str) -> None:
        is_other = bool(what) != bool(self._job.awaits)
        if what != self._job.awaits:
            self._job.apply(None, DevicesAwaited(what))
        if is_other:
            self._journal.begin()

    def _look(self) -> str:
        """Finds the GPUs that are free; returns what the job waits for, or nothing if they are enough."""
        others, taken = conflicts.before(self._job.launched)
        held, how = self._held([uuid for uuid in self._wanted if uuid not in taken])
        self._free = [uuid for uuid in self._wanted if uuid not in taken and uuid not in held]
        if len(self._free) >= self._count:
            return ""
        if self._count == len(self._wanted):
            return f"for {others or how}"
        return f"for {self._count} of {len(self._wanted)} GPUs, {f'after {others}' if others else f'such as {how}'}"

    def _held(self, devices: Collection[str]) -> tuple[Collection[str], str]:
        """Those of these GPUs whose memory processes hold, and that in a few words."""
        numbers = {gpu.uuid: index for index, gpu in enumerate(self._hardware.gpus)}
        alone = {gpu.uuid for gpu in self._hardware.gpus if gpu.access == "exclusive"}
        used = {
            uuid: use
            for uuid, use in hardware.memory_use().items()
            if uuid in devices and (use.used > _FREE or (use.holders and uuid in alone))
        }
        if not used:
            return used, ""
        uuid, use = next(iter(used.items()))
        who = "this process holds" if list(use.holders) == [os.getpid()] else "processes hold"
        more = f" and {counted(len(used) - 1, 'other GPU')}" if len(used) > 1 else ""
        return used, f"GPU {numbers.get(uuid, uuid)}, where {who} {size(use.used)}{more}"
