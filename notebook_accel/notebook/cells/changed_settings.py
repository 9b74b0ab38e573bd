"""Compares the settings of the running ranks with those that new ranks would get."""

from __future__ import annotations

from dataclasses import fields

from notebook_accel.config import LaunchConfig
from notebook_accel.launch.plan.plan import Plan

_PLANNED = ("num_processes", "device")
"""Settings that the plan chooses if they are not set."""
_SECRET = ("env",)
"""Settings whose values are never shown, because they may be secret and notebooks are shared."""


def differences(alive: Plan, now: Plan) -> list[str]:
    """Settings that differ between the running ranks and new ones: `num_processes=2, not 3`."""
    found = [("num_processes", alive.size, now.size), ("device", alive.device, now.device)]
    found += [
        (each.name, getattr(alive.config, each.name), getattr(now.config, each.name))
        for each in fields(LaunchConfig)
        if each.compare and each.name not in _PLANNED
    ]
    return [
        name if name in _SECRET else f"{name}={_text(running)}, not {_text(new)}"
        for name, running, new in found
        if running != new
    ]


def _text(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value) or "none"
