"""The process on a node that hosts an agent: connects to the bridge, and runs until that connection ends.

A launcher starts it, and writes the order to its standard input, as one line of JSON.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Mapping
from typing import Any

from notebook_accel import hardware
from notebook_accel.errors import StreamError
from notebook_accel.launch.cluster import clock_offset, connection
from notebook_accel.launch.cluster.agent.agent import NodeAgent
from notebook_accel.launch.cluster.agent_launcher import ClusterError
from notebook_accel.launch.cluster.connection import FrameConnection
from notebook_accel.launch.cluster.protocol import DESCRIPTION
from notebook_accel.launch.cluster.versions import versions

_OF_STEP = ("SLURM_", "SLURMD_", "PMI", "SRUN_")
"""Variables that Slurm sets for a task. They would make a library such as Lightning mistake a rank for that task."""
_KEPT = ("SLURM_JOB_ID", "SLURM_TMPDIR")


def main() -> None:
    """The entry point of the process."""
    order = json.loads(sys.stdin.readline())
    try:
        if "bridge" in order:
            run(order)
        else:
            sys.stdout.write(f"{DESCRIPTION}{json.dumps(describe())}\n")
    except ClusterError as error:
        sys.exit(str(error))


def run(order: Mapping[str, Any]) -> None:
    """Runs an agent until its connection to the bridge ends.

    Raises:
        ClusterError: The bridge can't be reached.
    """
    host = os.environ.get("SLURMD_NODENAME", socket.gethostname())
    for name in list(os.environ):
        if name.startswith(_OF_STEP) and name not in _KEPT:
            del os.environ[name]
    name = order.get("name", host)
    bridge, port = order["bridge"]
    link = _connect(name, bridge, port, bytes.fromhex(order["secret"]))
    joined = {
        "op": "joined",
        "node": str(order.get("node", host)),
        "node_rank": order.get("node_rank", 0),
        "host": name,
        "address": link.address,
        "versions": versions(),
    }
    try:
        link.send([(joined, ())])
        clock_offset.answer(link)
    except (EOFError, OSError, StreamError):  # the bridge has turned it away
        return
    NodeAgent(link, order["environ"]).run()


def describe() -> dict[str, Any]:
    """What a launcher has to know of this node."""
    *_, address, _ = os.environ.get("SSH_CONNECTION", f"{socket.gethostname()} 22").split()
    return {
        "address": address,
        "cpus": len(os.sched_getaffinity(0)),
        "gpus": len(hardware.detect().gpus),
        "versions": versions(),
    }


def _connect(name: str, host: str, port: int, secret: bytes) -> FrameConnection:
    try:
        return connection.call(host, port, secret)
    except connection.AuthenticationError as error:
        raise ClusterError(
            f"{name} reached a program at {host}:{port} that is not the launch that started this agent: the two do "
            "not share a secret. Launch again."
        ) from error
    except (OSError, EOFError) as error:
        raise ClusterError(
            f"{name} can't reach the notebook's machine at {host}:{port}: {str(error) or 'it hung up'}. Agents connect "
            "to the notebook, so a firewall or NAT between them must allow this: run the notebook on a machine that "
            "the cluster can reach."
        ) from error
