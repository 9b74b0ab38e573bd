"""What to do about problems with Slurm."""

from __future__ import annotations

import sys

from notebook_accel.launch.engines.contract import NodeRequest

MISSING = (
    "cluster='slurm' needs Slurm's commands, but there is no srun here: run the notebook on a login node, or in an "
    "allocation (salloc)"
)
_MOST = 2000
"""Characters of output in a message."""


def explain(output: str, request: NodeRequest, seconds: float) -> str:
    """Why `srun` has ended, from what it and the agents have written.

    Args:
        output: The output.
        request: The nodes that it was to allocate.
        seconds: How long it was to wait for them.
    """
    output = output[-_MOST:]
    if "No module named" in output:
        output += (
            f". The machines run {sys.executable}, like this one: install notebook-accel where all of them can find "
            "it, such as in a shared home"
        )
    elif any(sign in output for sign in ("Unable to allocate resources", "Unable to create step", "Immediate")):
        output += (
            f". Machines with {request} each were not free within {seconds} s: request fewer, or wait for them with "
            "`salloc --nodes=…` and run the notebook in that allocation"
        )
    return f"Slurm did not start the agents: {output or 'there was no output'}"
