"""Waits for what the fork server of this process preloads."""

import select
from typing import Any

from notebook_accel.launch import engines


def wait() -> None:
    """Returns once ranks start from a server that has imported all that was asked for, also if it replaces another."""
    engine: Any = engines.get()
    engine.preload(())
    while engine.next is not None:
        select.select([engine.next.control], [], [], 1.0)
        engine.preload(())
