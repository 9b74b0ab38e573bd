"""The process that hosts an agent on a Slurm node: `srun` starts it, and it connects to the bridge.

It reads the bridge's address, the port and the secret from its standard input, as one line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
import threading

from notebook_accel.launch.cluster import connection
from notebook_accel.launch.cluster.agent.agent import NodeAgent
from notebook_accel.launch.cluster.connection import FrameConnection
from notebook_accel.launch.cluster.protocol import WAIT

_OF_STEP = ("SLURM_", "SLURMD_", "PMI", "SRUN_")
"""Variables that Slurm sets for a task. They would make a library such as Lightning mistake a rank for that task."""
_KEPT = ("SLURM_JOB_ID", "SLURM_TMPDIR")


def main() -> None:
    """Runs until the connection to the bridge ends."""
    order = json.loads(sys.stdin.readline())
    host = os.environ.get("SLURMD_NODENAME", os.uname().nodename)
    for name in list(os.environ):
        if name.startswith(_OF_STEP) and name not in _KEPT:
            del os.environ[name]
    try:
        link = connection.call(order["host"], order["port"], bytes.fromhex(order["secret"]))
    except (OSError, EOFError, connection.AuthenticationError) as error:
        sys.exit(f"{host} can't reach the notebook's machine at {order['host']}:{order['port']}: {error}")
    agent = NodeAgent(link.address, order["environ"])
    try:
        link.send([({**agent.info(), "host": host}, ())])
        threading.Thread(target=_send_frames, args=(agent, link), name="notebook-accel-tell", daemon=True).start()
        number = 0
        while True:
            agent.deliver(number, link.receive())
            number += 1
    except (OSError, EOFError, ValueError):
        pass  # the bridge has ended or has closed the connection
    finally:
        agent.close()


def _send_frames(agent: NodeAgent, link: FrameConnection) -> None:
    """Sends the agent's frames to the bridge, and now and then an empty list, so that each side detects a lost peer."""
    after = 0
    try:
        while True:
            after, frames = agent.poll(after, WAIT)
            link.send(frames)
    except Exception as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        link.close()


if __name__ == "__main__":
    main()
