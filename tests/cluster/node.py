"""Starts a Ray node that lives on: `ray start`, without what only costs time here, and with patience.

    python -m tests.cluster.node OWN_ADDRESS HEAD_ADDRESS

It is the head where both addresses are the same machine's.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from ray._private.node import Node
from ray._private.parameter import RayParams

from tests.cluster import patience

_AGENT = "dashboard_agent_listen_port"
_PORTS = {
    _AGENT: 52365,
    "metrics_agent_port": 50001,
    "metrics_export_port": 50002,
    "runtime_env_agent_port": 50003,
}
"""Fixed, or the node would wait until each process has told its own. It has a network to itself, so they are free."""


class PromptNode(Node):
    """Tells one of these ports in its agent's place, whose 15 seconds to do so are too few on a busy machine."""

    def start_raylet(self, *given: Any) -> None:
        Path(self._session_dir, f"{_AGENT}_{self._node_id}").write_text(str(_PORTS[_AGENT]))
        super().start_raylet(*given)


def main(own: str, head: str) -> None:
    host, _, port = head.rpartition(":")
    is_head = own == host
    patience.take()
    parameters = RayParams(
        node_ip_address=own,
        num_cpus=4,
        object_store_memory=100_000_000,
        include_dashboard=False,
        include_log_monitor=False,
        no_monitor=True,
        **_PORTS,
        **({"gcs_server_port": int(port)} if is_head else {"gcs_address": head}),
    )
    PromptNode(parameters, head=is_head, shutdown_at_exit=False, spawn_reaper=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
