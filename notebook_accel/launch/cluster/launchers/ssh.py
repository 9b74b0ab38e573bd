"""Starts agents with the user's own `ssh`, with its configuration, keys and key agent. No daemon but sshd is needed."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from notebook_accel.config import ssh_hosts
from notebook_accel.launch.cluster import versions
from notebook_accel.launch.cluster.agent_launcher import ClusterError, Order
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
MISSING = "cluster='ssh://…' needs the command ssh, which this machine does not have: install OpenSSH's client"
_MOST = 2000
"""Characters of output in a message."""
_OF_SSH = 255
"""The exit code of an error of `ssh` itself."""
_NOT_FOUND = (126, 127)
"""The exit codes of a shell that can't run a command."""
_ADVICE = {
    "could not resolve": """
        there is no host of that name. Check the spelling, or add it to ~/.ssh/config.""",
    "permission denied|too many authentication failures": """
        it does not let you log in without a password. Check the user name (cluster='ssh://USER@HOST'), and add your
        key there with `ssh-copy-id {login}` or to your key agent with `ssh-add`, until `ssh {login} true` asks
        nothing.""",
    "host key|host identification": """
        its host key is not known here, or has changed. Run `ssh {login}` yourself once, and compare the key.""",
    "": """
        it does not answer. Check that it runs and accepts ssh, and that no firewall is between: `ssh {login} true` must
        work.""",
}
"""The meanings of errors of `ssh`, by patterns of their text."""


class SshLauncher:
    """The hosts of an address.

    Args:
        address: `ssh://host1,user@host2:port`.
        python: The Python to run there.
    """

    def __init__(self, address: str, *, python: str = sys.executable) -> None:
        targets = ssh_hosts.of(address)
        hosts = [ssh_hosts.host(target) for target in targets]
        names = [host if hosts.count(host) == 1 else target for host, target in zip(hosts, targets, strict=True)]
        self._targets = dict(zip(names, targets, strict=True))
        """What `ssh` calls each host, by the name that users see."""
        self._python = python
        self._nodes: list[NodeInfo] = []
        """The result of the last survey, since hosts do not change, and one takes a second."""

    def connect(self, timeout: float) -> None:
        del timeout  # each connection has its own
        if not shutil.which("ssh"):
            raise ClusterError(MISSING)

    def survey(self) -> list[NodeInfo]:
        if not self._nodes:
            sessions = _Sessions(self._targets, {name: {} for name in self._targets}, self._python)
            try:
                self._nodes = sessions.descriptions()
            finally:
                sessions.stop()
        return list(self._nodes)

    def start(self, request: NodeRequest, nodes: Sequence[NodeInfo], order: Order) -> _Sessions:
        orders = {
            node.host: {**order, "node": node.host, "name": node.host, "node_rank": node_rank}
            for node_rank, node in enumerate(nodes[: request.count])
        }
        return _Sessions(self._targets, orders, self._python, self._nodes.clear)


class _Sessions:
    """An `ssh` for each host.

    Args:
        targets: What `ssh` calls each host.
        orders: The order for each host.
        python: The Python to run there.
        on_failure: Called when an agent has ended.
    """

    def __init__(
        self,
        targets: Mapping[str, str],
        orders: Mapping[str, Order],
        python: str,
        on_failure: Callable[[], object] = lambda: None,
    ) -> None:
        self._targets = targets
        self._python = python
        self._on_failure = on_failure
        self._sessions: dict[str, LocalProcess] = {}
        options = [word for name, value in _OPTIONS.items() for word in ("-o", f"{name}={value}")]
        remote = f"exec {shlex.join(agent_command(python))}"
        try:
            for name, order in orders.items():
                command = ["ssh", "-T", "-a", "-x", *options, f"ssh://{targets[name]}", remote]
                self._sessions[name] = LocalProcess(command, order)
        except BaseException:
            self.stop()
            raise

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
            raise ClusterError(slow(name, self._targets[name], _PROBE_TIMEOUT))
        if line is None:
            raise ClusterError(self._why_ended(name))
        found: dict[str, Any] = json.loads(line.removeprefix(DESCRIPTION))
        versions.compare(name, found["address"], found["versions"])
        return NodeInfo(name, found["address"], found["cpus"], found["gpus"])

    def _why_ended(self, name: str) -> str:
        session = self._sessions[name]
        return explain(name, self._targets[name], self._python, session.exit_code(), session.output())


def explain(name: str, target: str, python: str, code: int | None, output: str) -> str:
    """Why `ssh`, or the agent that it ran, has ended.

    Args:
        name: The host.
        target: The host as `ssh` knows it, with the user and the port.
        python: The Python that was to run there.
        code: The exit code.
        output: What both have written.
    """
    said = output[-_MOST:] or f"exit code {code}, without a message"
    if code == _OF_SSH:
        advice = next(advice for pattern, advice in _ADVICE.items() if re.search(pattern, output, re.IGNORECASE))
        advice = " ".join(advice.split()).format(login=_login(target))
        return f"{name} can't be reached over ssh: {advice} ssh reports: {said}"
    if code in _NOT_FOUND:
        return (
            f"{name} can't run {python}, the Python of this notebook: {said}. Install the same environment there, at "
            "the same path."
        )
    if "No module named" in output:
        return (
            f"{name} has {python}, but not all packages that this notebook uses: {said.splitlines()[-1]}. Install the "
            "same versions there."
        )
    return f"the agent on {name} has ended: {said}"


def slow(name: str, target: str, seconds: float) -> str:
    """The message for a host that accepts the connection and does no more."""
    return (
        f"{name} accepted the connection, but did not run a command within {seconds:g} s: it may be overloaded, or its "
        f"file system hangs. Check that `ssh {_login(target)} true` works."
    )


def _login(target: str) -> str:
    """The arguments of `ssh` for a host."""
    host, _, port = target.rpartition(":")
    return f"-p {port} {host}" if host and port.isdecimal() else target
