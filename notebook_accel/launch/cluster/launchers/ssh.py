"""Starts agents with the user's own `ssh`, with its configuration, keys and key agent. No daemon but sshd is needed."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from notebook_accel.config import checks
from notebook_accel.launch.cluster import versions
from notebook_accel.launch.cluster.agent_launcher import ClusterError, Order
from notebook_accel.launch.cluster.launchers import ssh_advice
from notebook_accel.launch.cluster.launchers.local_process import LocalProcess, agent_command
from notebook_accel.launch.cluster.protocol import DESCRIPTION
from notebook_accel.launch.engines.contract import NodeInfo, NodeRequest

_OPTIONS = {
    "BatchMode": "yes",  # there is nobody to ask for a password
    "ConnectTimeout": "10",
    "AddressFamily": "inet",  # ranks form their group over IPv4
    "ServerAliveInterval": "10",  # a connection that is gone ends `ssh` here within half a minute
    "ServerAliveCountMax": "3",
    "ClearAllForwardings": "yes",  # of the user's configuration: two sessions could not share a port
    "LogLevel": "ERROR",
}
_PROBE_TIMEOUT = 60.0
_CHECK_INTERVAL = 0.02


class SshLauncher:
    """The hosts of an address.

    Args:
        address: `ssh://host1,user@host2:port`.
        python: The Python to run there.
    """

    def __init__(self, address: str, *, python: str = sys.executable) -> None:
        targets = checks.ssh_hosts(address)
        hosts = [checks.ssh_host(target) for target in targets]
        times = Counter(hosts)
        self._targets = {
            host if times[host] == 1 else target: target for host, target in zip(hosts, targets, strict=True)
        }
        """What `ssh` calls each host, by the name that users see."""
        self._python = python
        self._nodes: list[NodeInfo] = []
        """The result of the last survey, since hosts do not change, and one takes a second."""

    def connect(self, timeout: float) -> None:
        del timeout  # each connection has its own
        if not shutil.which("ssh"):
            raise ClusterError(ssh_advice.MISSING)

    def survey(self) -> list[NodeInfo]:
        if not self._nodes:
            self._nodes = self._probe()
        return list(self._nodes)

    def start(self, request: NodeRequest, nodes: Sequence[NodeInfo], order: Order) -> _Sessions:
        sessions = _Sessions(self._python, self._nodes.clear)
        for node_rank, node in enumerate(nodes[: request.count]):
            target = self._targets[node.host]
            sessions.add(node.host, target, {**order, "node": target, "name": node.host, "node_rank": node_rank})
        return sessions

    def _probe(self) -> list[NodeInfo]:
        """Asks all hosts at once what they have."""
        sessions = _Sessions(self._python)
        try:
            for name, target in self._targets.items():
                sessions.add(name, target, {})
            return sessions.descriptions()
        finally:
            sessions.stop()


class _Sessions:
    """An `ssh` for each host.

    Args:
        python: The Python to run there.
        on_failure: Called when an agent has ended.
    """

    def __init__(self, python: str, on_failure: Callable[[], object] = lambda: None) -> None:
        self._python = python
        self._on_failure = on_failure
        self._sessions: dict[str, LocalProcess] = {}
        self._targets: dict[str, str] = {}

    def add(self, name: str, target: str, order: Order) -> None:
        """Starts one."""
        options = [word for name, value in _OPTIONS.items() for word in ("-o", f"{name}={value}")]
        remote = f"exec {shlex.join(agent_command(self._python))}"
        self._targets[name] = target
        self._sessions[name] = LocalProcess(["ssh", "-T", "-x", *options, f"ssh://{target}", remote], order)

    def check(self) -> None:
        if problems := [self._why_ended(name) for name, each in self._sessions.items() if each.exit_code() is not None]:
            self._on_failure()
            raise ClusterError("\n".join(problems))

    def stop(self) -> None:
        for session in self._sessions.values():
            session.stop()

    def descriptions(self) -> list[NodeInfo]:
        """What the hosts say of themselves; waits for it.

        Raises:
            ClusterError: Some can't be used; the text names each.
        """
        deadline = time.monotonic() + _PROBE_TIMEOUT
        while any(session.exit_code() is None for session in self._sessions.values()) and time.monotonic() < deadline:
            time.sleep(_CHECK_INTERVAL)
        found, problems = [], []
        for name in self._sessions:
            try:
                found.append(self._description(name))
            except ClusterError as error:
                problems.append(str(error))
        if problems:
            raise ClusterError("\n".join(problems))
        return found

    def _description(self, name: str) -> NodeInfo:
        session = self._sessions[name]
        line = next((line for line in session.output().splitlines() if line.startswith(DESCRIPTION)), None)
        if session.exit_code() is None:
            raise ClusterError(ssh_advice.slow(name, self._targets[name], _PROBE_TIMEOUT))
        if line is None:
            raise ClusterError(self._why_ended(name))
        told: Mapping[str, object] = json.loads(line.removeprefix(DESCRIPTION))
        address = str(told["address"])
        versions.compare(name, address, told["versions"])  # type: ignore[arg-type]
        return NodeInfo(name, address, int(told["cpus"]), int(told["gpus"]))  # type: ignore[call-overload]

    def _why_ended(self, name: str) -> str:
        session = self._sessions[name]
        return ssh_advice.explain(name, self._targets[name], self._python, session.exit_code(), session.output())
