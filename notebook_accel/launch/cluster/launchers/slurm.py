"""Starts agents with one task of `srun` on each node.

In an allocation (a notebook that runs in `salloc` or a batch job), the agents start at once as a step of it; elsewhere,
`srun` requests a new allocation.

Source: `man srun`, `man sinfo` of Slurm 22.05.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest

from notebook_accel.launch.cluster.agent_launcher import ClusterError, Order
from notebook_accel.launch.cluster.launchers.local_process import LocalProcess, agent_command
from notebook_accel.launch.engines.contract import NodeInfo, NodeRequest

_COMMAND_TIMEOUT = 20.0
"""The timeout of Slurm's commands, in seconds."""
_ALLOCATION_TIMEOUT = 60
"""Seconds to wait for nodes that are in use."""
_USABLE = ("idle", "mix", "alloc", "comp")
_FORMAT = "%N|%o|%c|%G|%t"
_TIMES = re.compile(r"(\d+)(?:\(x(\d+)\))?")
_GPUS = re.compile(r"gpu:(?:[^:(,]+:)?(\d+)")
MISSING = (
    "cluster='slurm' needs Slurm's commands, but there is no srun here: run the notebook on a login node, or in an "
    "allocation (salloc)"
)
_MOST = 2000
"""Characters of output in a message."""


class SlurmLauncher:
    """The cluster that Slurm's commands on this node reach."""

    def connect(self, timeout: float) -> None:
        del timeout  # every command has its own
        if not shutil.which("srun") or not shutil.which("sinfo"):
            raise ClusterError(MISSING)

    def survey(self) -> list[NodeInfo]:
        nodes = os.environ.get("SLURM_JOB_NODELIST")
        where = ["--nodes", nodes] if nodes else []
        found = parse(_run_command(["sinfo", "--noheader", "--Node", *where, "--format", _FORMAT]))
        if not nodes:
            return list(found.values())
        mine = _run_command(["scontrol", "show", "hostnames", nodes]).split()
        allotted = per_node(os.environ.get("SLURM_JOB_CPUS_PER_NODE", ""))
        return [
            replace(found[name], cpus=min(cpus, found[name].cpus))
            for name, cpus in zip_longest(mine, allotted[: len(mine)], fillvalue=sys.maxsize)
            if name in found
        ]

    def start(self, request: NodeRequest, nodes: Sequence[NodeInfo], order: Order) -> _Step:
        del nodes  # Slurm chooses
        return _Step(LocalProcess(command(request), order), request)


class _Step:
    """The tasks of one `srun`."""

    def __init__(self, srun: LocalProcess, request: NodeRequest) -> None:
        self._srun = srun
        self._request = request

    def check(self) -> None:
        if self._srun.exit_code() is not None:
            raise ClusterError(explain(self._srun.output(), self._request, _ALLOCATION_TIMEOUT))

    def stop(self) -> None:
        self._srun.stop()


def command(request: NodeRequest) -> list[str]:
    """The command line that starts an agent on each of the requested nodes."""
    inside = "SLURM_JOB_ID" in os.environ
    return [
        *("srun", f"--nodes={request.count}", f"--ntasks={request.count}", "--ntasks-per-node=1"),
        f"--cpus-per-task={request.cpus}",
        *([f"--gpus-per-node={request.gpus}"] if request.gpus else []),
        *([f"--exclude={','.join(request.excluded)}"] if request.excluded else []),
        *(["--overlap"] if inside else ["--job-name=notebook-accel"]),
        f"--immediate={_ALLOCATION_TIMEOUT}",
        "--kill-on-bad-exit=0",  # an agent that is left ends its ranks in order
        "--quiet",
        *("--input=all", "--unbuffered", "--mpi=none"),
        *agent_command(),
    ]


def parse(said: str) -> dict[str, NodeInfo]:
    """The nodes in the output of `sinfo` with `_FORMAT`, by name; one in several partitions counts once."""
    found = {}
    for line in said.splitlines():
        name, address, cpus, resources, state = line.split("|")
        if state.startswith(_USABLE):
            found[name] = NodeInfo(name, address, int(cpus), sum(map(int, _GPUS.findall(resources))))
    return found


def per_node(text: str) -> list[int]:
    """The CPUs of each node in `SLURM_JOB_CPUS_PER_NODE`: `4(x2),8` is 4, 4 and 8."""
    return [int(count) for count, times in _TIMES.findall(text) for _ in range(int(times or 1))]


def _run_command(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_COMMAND_TIMEOUT)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ClusterError(f"Slurm does not answer: {command[0]}: {error}") from error
    if done.returncode:
        raise ClusterError(f"Slurm does not answer: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


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
