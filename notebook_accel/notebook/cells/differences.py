"""How ranks that are alive differ from those that would be started now."""

from __future__ import annotations

from dataclasses import fields

from notebook_accel.config import LaunchConfig
from notebook_accel.launch.plan.plan import Plan

_PLANNED = ("num_processes", "device")
"""Settings that a plan decides where they are left open."""
_SECRET = ("env",)
"""Their values may be: notebooks are shared."""


def differences(alive: Plan, now: Plan) -> list[str]:
    """What is set for the ranks that are alive and would be otherwise for new ones: `num_processes=2, not 3`."""
    found = [("num_processes", alive.size, now.size), ("device", alive.device, now.device)]
    found += [
        (each.name, getattr(alive.config, each.name), getattr(now.config, each.name))
        for each in fields(LaunchConfig)
        if each.compare and each.name not in _PLANNED
    ]
    return [
        name if name in _SECRET else f"{name}={_words(theirs)}, not {_words(ours)}"
        for name, theirs, ours in found
        if theirs != ours
    ]


def _words(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value) or "none"
