"""Slurm on this machine: munge, a controller, and two daemons that each stand for a machine."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
from pathlib import Path

import psutil

from tests.free_ports import free_ports
from tests.live_notebook import wait_until

NODES = ("ada", "bob")
_CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
AuthType=auth/munge
AuthInfo=socket={home}/munge/socket
CryptoType=crypto/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={home}/state
SlurmdSpoolDir={home}/%n
SlurmctldPidFile={home}/slurmctld.pid
SlurmdPidFile={home}/%n.pid
SlurmctldLogFile={home}/slurmctld.log
SlurmdLogFile={home}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
KillWait=1
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=batch_sched_delay=0,sched_interval=1
GresTypes=gpu
NodeName=ada NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=32 RealMemory=1000 State=UNKNOWN
NodeName=bob NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=32 RealMemory=1000 State=UNKNOWN
PartitionName=main Nodes=ada,bob Default=YES MaxTime=INFINITE State=UP
"""


def why_not() -> str:
    """Why Slurm can't run here; empty if it can."""
    missing = [name for name in ("munged", "slurmctld", "slurmd", "srun") if not shutil.which(name)]
    if missing:
        return f"{', '.join(missing)} not installed: apt-get install slurm-wlm munge"
    return "" if os.geteuid() == 0 else "Slurm's daemons run as root"


class Slurm:
    """Runs until `close`.

    Args:
        home: An empty folder with a short name, which other users may enter.
    """

    def __init__(self, home: Path) -> None:
        self._home = home
        self.environ = {"SLURM_CONF": f"{home}/slurm.conf"}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        for name in ("munge", "state", *NODES):
            (home / name).mkdir()
        text = _CONFIGURATION.format(home=home, host=socket.gethostname(), ports=free_ports(3))
        # Slurm finds fewer CPUs here than it is told, which is allowed for tests.
        (home / "slurm.conf").write_text(text + "SlurmdParameters=config_overrides\n")
        try:
            self._munge()
            self._start("slurmctld", "slurmctld", "-D")
            for node in NODES:
                self.start(node)
        except BaseException:
            self.close()
            raise

    def start(self, node: str) -> None:
        """Adds a machine, and waits until it is there."""
        self._start(node, "slurmd", "-D", "-N", node)
        wait_until(lambda: self._state(node).startswith(("idle", "mix", "alloc")), what=f"{node} does not come up")

    def kill(self, node: str) -> None:
        """Ends a machine at once, with all that runs on it."""
        running = self._processes.pop(node)
        daemon = psutil.Process(running.pid)
        found = [daemon, *daemon.children(recursive=True), *self._steps(node)]
        for process in found:
            try:
                found += process.children(recursive=True)
            except psutil.Error:
                continue
        for process in found:
            try:
                process.kill()
            except psutil.Error:
                continue
        running.wait(10)

    @staticmethod
    def processes() -> list[psutil.Process]:
        """All of this machine's, since agents are started by daemons of Slurm's."""
        return list(psutil.process_iter())

    def close(self) -> None:
        """Ends all."""
        for name in ("slurmctld", "munged"):
            if name in self._processes:
                self._processes[name].terminate()
        for node in NODES:
            if node in self._processes:
                self.kill(node)
        for process in self._processes.values():
            process.wait(10)

    def _munge(self) -> None:
        folder = self._home / "munge"
        (folder / "key").write_bytes(secrets.token_bytes(64))
        (folder / "key").chmod(0o400)
        files = {"key-file": "key", "socket": "socket", "log-file": "log", "pid-file": "pid", "seed-file": "seed"}
        self._start("munged", "munged", "--force", "--foreground", *(f"--{a}={folder}/{b}" for a, b in files.items()))
        wait_until((folder / "socket").exists, what="munge does not come up")

    def _start(self, name: str, *command: str) -> None:
        self._processes[name] = subprocess.Popen(
            command, env={**os.environ, **self.environ}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def _state(self, node: str) -> str:
        asked = ["sinfo", "--noheader", "--nodes", node, "--format", "%t"]
        return subprocess.run(asked, env={**os.environ, **self.environ}, capture_output=True, text=True).stdout.strip()

    @staticmethod
    def _steps(node: str) -> list[psutil.Process]:
        """What runs for jobs on a machine."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get("SLURMD_NODENAME") == node:
                    found.append(process)
            except psutil.Error:
                continue
        return found
