"""The console script. A launch forks the process that imports torch before it parses options, to save a second."""

from __future__ import annotations

import sys
from typing import NoReturn


def run() -> NoReturn:
    """Runs the command line to its end.

    The exit code is 0, 2 for errors that the user can correct, 130 after an interrupt, or that of a script that failed.
    """
    agent = None
    if sys.argv[1:2] == ["launch"]:
        from notebook_accel.cli.launch.agent_process import Agent

        agent = Agent()
    try:
        from notebook_accel.cli import main

        main.run(agent)
    finally:
        if agent is not None:
            agent.kill()
