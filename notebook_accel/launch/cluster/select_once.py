"""One turn of an event loop whose callbacks may unregister other sources."""

from __future__ import annotations

import selectors


def select_once(selector: selectors.BaseSelector, timeout: float) -> None:
    """Waits until a source is ready, and calls the callback of each that is still registered when its turn comes."""
    for key, _ in selector.select(timeout):
        if selector.get_map().get(key.fd) is key:
            key.data()
