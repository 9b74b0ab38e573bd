"""Has Ray wait for the processes of a node for as long as a machine with other work needs."""

from __future__ import annotations

import time
from typing import Any

from ray._private import services

SECONDS = 100


def take() -> None:
    """Call it before a node is started."""
    get_node = services.get_node

    # It is given 30 s, and no setting says so.
    def get(*given: Any) -> Any:
        deadline = time.monotonic() + SECONDS
        while True:
            try:
                return get_node(*given)
            except RuntimeError:
                if time.monotonic() > deadline:
                    raise

    services.get_node = get
