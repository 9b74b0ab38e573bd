"""What the browser gets about devices. `scripts/generate` writes extension/lab/src/deviceModel.ts from it.

The server makes all text about a device; the browser only draws it.
"""

from __future__ import annotations

from typing import TypeAlias, TypedDict

Moment: TypeAlias = tuple[int, int]
"""`[x, y]` of a chart, in thousandths of its width, the last five minutes, and of its height; 0 is the bottom."""


class Gauge(TypedDict):
    """Something that is measured again and again."""

    name: str
    value: str
    """The last value, and the most that is possible."""
    lines: list[list[Moment]]
    """The last five minutes; a new line begins after a pause."""


class Device(TypedDict):
    """A GPU, or the machine itself."""

    id: str
    """As in `JobRow.devices`: the UUID of a GPU, or `cpu` for the machine."""
    title: str
    gauges: list[Gauge]
    warning: str
    """What is wrong with it; empty if nothing is."""


class DeviceListing(TypedDict):
    """The devices of the machine that the Jupyter server runs on."""

    devices: list[Device]
    """The machine, then its GPUs in the driver's order."""
    problem: str
    """Why GPUs can't be read; empty if they can, and without GPUs."""
