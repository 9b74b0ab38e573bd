"""Makes a loop over `Accelerator.epochs` known to the controls of the training while it runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from notebook_accel import events
from notebook_accel.events.emit import ControlledLoop


@contextlib.contextmanager
def controlled(loop: ControlledLoop) -> Iterator[None]:
    """Within the block, the controls act on this loop."""
    control = events.step_control()
    if control is None:
        yield
        return
    outer, control.loop = control.loop, loop
    control.refresh()
    try:
        yield
    finally:
        control.loop = outer
        control.refresh()
