"""One turn of a loop that listens to much, where hearing one thing may end another."""

from __future__ import annotations

import selectors


def select_once(selector: selectors.BaseSelector, timeout: float) -> None:
    """Waits until something can be heard, and does what is registered for each such thing that still is by then."""
    for key, _ in selector.select(timeout):
        if selector.get_map().get(key.fd) is key:
            key.data()
