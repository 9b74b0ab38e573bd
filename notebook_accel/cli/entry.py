"""The way in. What takes longest begins first: a launch imports torch while the command line reads its options."""

from __future__ import annotations

import sys
from typing import NoReturn


def run() -> NoReturn:
    """Runs the command line to its end.

    The exit code is 0, 2 for what the user can put right, 130 after an interrupt, or that of the script that failed.
    """
    agent = None
    if sys.argv[1:2] == ["launch"]:
        from notebook_accel.cli.launch.monitor import Agent

        agent = Agent()
    try:
        from notebook_accel.cli import main

        main.run(agent)
    finally:
        if agent is not None:
            agent.dismiss()
