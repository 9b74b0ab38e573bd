"""Hosts on this machine: a real sshd for each, on the loopback interface, with keys and settings of their own."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
from pathlib import Path

import psutil

from tests.free_ports import free_ports
from tests.live_notebook import wait_until

NODES = ("ada", "bob")
VARIABLE = "SSH_NODE_UNDER_TEST"
"""Names the host, in all that runs there."""
_SSHD = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/sbin") or ""
_SERVER = """
Port {port}
ListenAddress 127.0.0.1
HostKey {home}/host_key
PidFile none
AuthorizedKeysFile {home}/key.pub
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
StrictModes no
AcceptEnv {variable} PYTHONPATH
"""
_CLIENT = """
Host *
    User {user}
    HostName 127.0.0.1
    IdentityFile {home}/key
    IdentitiesOnly yes
    IdentityAgent none
    UserKnownHostsFile {home}/known_hosts
    GlobalKnownHostsFile /dev/null
    StrictHostKeyChecking yes
"""


def why_not() -> str:
    """Why there can be no sshd here; empty if there can."""
    missing = [name for name in ("ssh", "ssh-keygen") if not shutil.which(name)] + ([] if _SSHD else ["sshd"])
    return f"{', '.join(missing)} not installed: apt-get install openssh-server" if missing else ""


class Hosts:
    """Two hosts, until `close`.

    Args:
        home: An empty folder.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        self.environ = {"PATH": f"{home}/bin:{os.environ['PATH']}"}
        """Has `ssh` know the hosts, as the configuration of a user would."""
        self._ports = dict(zip(NODES, free_ports(len(NODES)), strict=True))
        self._servers: dict[str, subprocess.Popen[bytes]] = {}
        for name in ("key", "host_key"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", home / name], check=True)
        host_key = (home / "host_key.pub").read_text()
        (home / "known_hosts").write_text("".join(f"[127.0.0.1]:{port} {host_key}" for port in self._ports.values()))
        (home / "config").touch()
        for node in NODES:
            self.add_alias(node, node)
        (home / "bin").mkdir()
        command = home / "bin" / "ssh"
        command.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {home}/config "$@"\n')
        command.chmod(0o700)
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)  # where it locks itself in until a user has logged in
        try:
            for node in NODES:
                self.start(node)
        except BaseException:
            self.close()
            raise

    def add_alias(self, name: str, node: str, pythonpath: Path | None = None, **options: str) -> None:
        """Gives a host another name, with other options of `ssh`."""
        variables = f"{VARIABLE}={self.home}/{name}" + (f" PYTHONPATH={pythonpath}" if pythonpath else "")
        options = {"Port": str(self._ports[node]), "SetEnv": variables, **options}
        lines = "".join(f"    {option} {value}\n" for option, value in options.items())
        config = self.home / "config"
        own = config.read_text().partition("\nHost *")[0]
        everyone = _CLIENT.format(home=self.home, user=getpass.getuser())
        config.write_text(f"{own}\nHost {name}\n{lines}{everyone}")  # the first value of each option counts

    def start(self, node: str) -> None:
        """Adds a host, and waits until it answers."""
        port = self._ports[node]
        config = self.home / f"{node}.conf"
        config.write_text(_SERVER.format(port=port, home=self.home, variable=VARIABLE))
        with (self.home / "log").open("ab") as log:
            self._servers[node] = subprocess.Popen([_SSHD, "-D", "-e", "-f", str(config)], stdout=log, stderr=log)
        wait_until(lambda: _answers(port), what=lambda: (self.home / "log").read_text())

    def kill(self, node: str) -> None:
        """Ends a host at once, with all that runs on it."""
        server = self._servers.pop(node)
        for process in [psutil.Process(server.pid), *self.processes(node)]:
            try:
                process.kill()
            except psutil.Error:
                continue
        server.wait(10)

    def shut_down(self, node: str) -> None:
        """Has a host begin to shut down: its processes get SIGTERM, and nobody can log in any more."""
        server = self._servers.pop(node)
        daemons = [psutil.Process(server.pid), *psutil.Process(server.pid).children(recursive=True)]
        for process in {*daemons, *self.processes(node)}:
            with contextlib.suppress(psutil.Error):
                process.terminate()
        server.wait(10)

    def processes(self, node: str = "") -> list[psutil.Process]:
        """What runs on a host, or on all of them."""
        return [process for process in psutil.process_iter() if _host_of(process).startswith(f"{self.home}/{node}")]

    def close(self) -> None:
        """Ends all."""
        for node in list(self._servers):
            self.kill(node)


def _host_of(process: psutil.Process) -> str:
    try:
        return process.environ().get(VARIABLE, "")
    except psutil.Error:
        return ""


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), 1) as link:
            return link.recv(4) == b"SSH-"
    except OSError:
        return False
