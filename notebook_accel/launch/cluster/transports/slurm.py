"""Nodes that Slurm allocates, with one task of `srun` on each, which hosts an agent and connects to the bridge.

In an allocation (a notebook that runs in `salloc` or a batch job), the agents start at once as a step of it; elsewhere,
`srun` requests a new allocation.

Source: `man srun`, `man sinfo` of Slurm 22.05.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import IO, Any

from notebook_accel.launch.cluster import connection, versions
from notebook_accel.launch.cluster.connection import FrameConnection
from notebook_accel.launch.cluster.protocol import Frame
from notebook_accel.launch.cluster.transport import ClusterError, Node
from notebook_accel.launch.engines import contract
from notebook_accel.launch.engines.contract import NodeInfo, NodeRequest
from notebook_accel.launch.system import network_interfaces

_COMMAND_TIMEOUT = 20.0
"""The timeout of Slurm's commands, in seconds."""
_ALLOCATION_TIMEOUT = 60
"""Seconds to wait for nodes that are in use."""
_AGENT_TIMEOUT = 120.0
"""How many seconds the agents have to connect once they have nodes."""
_EXIT_TIMEOUT = 5.0
"""How many seconds agents have to exit once their connections are closed."""
_ANY_PORT = 9
_USABLE = ("idle", "mix", "alloc", "comp")
_FORMAT = "%N|%o|%c|%G|%t"
_TIMES = re.compile(r"(\d+)(?:\(x(\d+)\))?")
_GPUS = re.compile(r"gpu:(?:[^:(,]+:)?(\d+)")


class SlurmCluster:
    """The cluster that Slurm's commands on this node reach."""

    def connect(self, patience: float) -> None:
        del patience  # every command has its own timeout
        if not shutil.which("srun") or not shutil.which("sinfo"):
            raise ClusterError(
                "cluster='slurm' needs Slurm's commands, but there is no srun here: run the notebook on a login node, "
                "or in an allocation (salloc)"
            )

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

    def start(self, machines: NodeRequest, environ: Mapping[str, str]) -> tuple[Any, list[Node]]:
        found = self.survey()
        fit = [each for each in found if each.cpus >= machines.cpus and each.gpus >= machines.gpus]
        if len(fit) < machines.count:
            raise ClusterError(contract.not_enough_nodes(machines, found))
        step = _Step(machines, _own_address([each.address for each in fit]))
        try:
            nodes = step.begin(environ)
            for node in nodes:
                versions.compare(node.host, node.address, node.versions)
        except BaseException:
            self.stop(step)
            raise
        return step, list(nodes)

    def share(self, data: bytes) -> Any:
        return data

    def stop(self, started: Any) -> None:
        started.end()


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


class _Step:
    """The agents of one start, and the `srun` process that runs them."""

    def __init__(self, machines: NodeRequest, host: str) -> None:
        self._machines = machines
        self._host = host
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # lives as long as the step
        self._process: subprocess.Popen[bytes] | None = None
        self._nodes: list[SlurmNode] = []

    def begin(self, environ: Mapping[str, str]) -> list[SlurmNode]:
        """Starts the agents, and waits until all have connected.

        Raises:
            ClusterError: They did not connect.
        """
        secret = secrets.token_bytes(32)
        with socket.create_server((self._host, 0), backlog=self._machines.count + 16) as listener:
            host, port = listener.getsockname()[:2]
            order = {"host": host, "port": port, "secret": secret.hex(), "environ": dict(environ)}
            self._process = subprocess.Popen(
                self._command(), stdin=subprocess.PIPE, stdout=self._log, stderr=self._log, start_new_session=True
            )
            assert self._process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.write(json.dumps(order).encode() + b"\n")
                self._process.stdin.close()
            self._nodes = self._accept_agents(listener, secret, self._process)
        return sorted(self._nodes, key=lambda node: versions.order(node.address, node.host))

    def end(self) -> None:
        """Closes the connections: the agents exit, and `srun` with them."""
        for node in self._nodes:
            node.close()
        if self._process is not None:
            process = self._process
            if not self._nodes:
                process.terminate()
            threading.Thread(target=_reap, args=(process,), name="notebook-accel-srun", daemon=True).start()
        self._log.close()

    def _command(self) -> list[str]:
        count, cpus, gpus = self._machines.count, self._machines.cpus, self._machines.gpus
        inside = "SLURM_JOB_ID" in os.environ
        return [
            *("srun", f"--nodes={count}", f"--ntasks={count}", "--ntasks-per-node=1", f"--cpus-per-task={cpus}"),
            *([f"--gpus-per-node={gpus}"] if gpus else []),
            *(["--overlap"] if inside else ["--job-name=notebook-accel"]),
            f"--immediate={_ALLOCATION_TIMEOUT}",
            "--kill-on-bad-exit=0",  # an agent that is left ends its ranks in order
            "--quiet",
            *("--input=all", "--unbuffered", "--mpi=none"),
            *(sys.executable, "-m", "notebook_accel.launch.cluster.agent.slurm_agent"),
        ]

    def _accept_agents(
        self, listener: socket.socket, secret: bytes, process: subprocess.Popen[bytes]
    ) -> list[SlurmNode]:
        """Accepts the agents. Each handshake has its own thread, so that a stranger does not delay the others."""
        called: queue.SimpleQueue[SlurmNode] = queue.SimpleQueue()
        nodes: list[SlurmNode] = []
        deadline = time.monotonic() + _ALLOCATION_TIMEOUT + _AGENT_TIMEOUT
        listener.settimeout(0.05)
        while len(nodes) < self._machines.count:
            with contextlib.suppress(TimeoutError):
                caller, _ = listener.accept()
                threading.Thread(target=_accept_agent, args=(caller, secret, called), daemon=True).start()
            while not called.empty():
                nodes.append(called.get())
            if process.poll() is not None:
                raise ClusterError(f"Slurm did not start the agents: {self._log_text()}")
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"only {len(nodes)} of {self._machines.count} machines have connected to {self._host} within "
                    f"{_ALLOCATION_TIMEOUT + _AGENT_TIMEOUT:g} s: {self._log_text()}"
                )
        return nodes

    def _log_text(self) -> str:
        """The output of `srun` and the agents, with advice."""
        said = os.pread(self._log.fileno(), 4000, 0).decode(errors="replace").strip()
        if "No module named" in said:
            said += (
                f". The machines run {sys.executable}, like this one: install notebook-accel where all of them can "
                "find it, such as in a shared home"
            )
        elif "Unable to allocate resources" in said or "Unable to create step" in said or "Immediate" in said:
            said += (
                f". Machines with {self._machines} each were not free within {_ALLOCATION_TIMEOUT} s: request fewer, "
                "or wait for them with `salloc --nodes=…` and run the notebook in that allocation"
            )
        return said or "there was no output"


class SlurmNode:
    """A node whose agent has connected."""

    def __init__(self, line: FrameConnection, info: Mapping[str, Any]) -> None:
        self.host = str(info["host"])
        self.address = str(info["address"])
        self.versions: Mapping[str, str] = info["versions"]
        self.offset = float(info["clock"]) - time.time()
        self._line = line
        self._outgoing: queue.SimpleQueue[Sequence[Frame] | None] = queue.SimpleQueue()

    def send(self, frames: Sequence[Frame]) -> None:
        self._outgoing.put(frames)

    def listen(self, on_frames: Callable[[Sequence[Frame]], object], on_lost: Callable[[str], object]) -> None:
        threading.Thread(target=self._send, name="notebook-accel-send", daemon=True).start()
        threading.Thread(
            target=self._receive, args=(on_frames, on_lost), name="notebook-accel-hear", daemon=True
        ).start()

    def close(self) -> None:
        """Sends queued frames, and disconnects."""
        self._outgoing.put(None)

    def _send(self) -> None:
        with contextlib.suppress(OSError):  # `_receive` reports it
            while (frames := self._outgoing.get()) is not None:
                self._line.send(frames)
        self._line.close()

    def _receive(self, on_frames: Callable[[Sequence[Frame]], object], on_lost: Callable[[str], object]) -> None:
        try:
            while True:
                on_frames(self._line.receive())
        except EOFError:
            on_lost("its agent has ended")
        except (OSError, ValueError) as error:
            on_lost(f"the connection broke: {error}")


def _accept_agent(caller: socket.socket, secret: bytes, called: queue.SimpleQueue[SlurmNode]) -> None:
    with contextlib.suppress(OSError, EOFError, ValueError, connection.AuthenticationError):
        line = connection.answer(caller, secret)
        ((info, _),) = line.receive()
        called.put(SlurmNode(line, info))


def _run_command(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_COMMAND_TIMEOUT)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ClusterError(f"Slurm does not answer: {command[0]}: {error}") from error
    if done.returncode:
        raise ClusterError(f"Slurm does not answer: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def _own_address(addresses: Sequence[str]) -> str:
    """This node's address on the network of the others."""
    for address in addresses:
        with contextlib.suppress(OSError):
            return network_interfaces.own_address(address, _ANY_PORT)
    raise ClusterError(f"this machine cannot resolve the name of any of Slurm's machines: {', '.join(addresses)}")


def _reap(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(_EXIT_TIMEOUT)
    except subprocess.TimeoutExpired:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_EXIT_TIMEOUT)
        process.kill()
        process.wait()
