"""A machine that is none: processes with a network, a name and process numbers of their own."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

_NEWNET = 0x40000000  # CLONE_NEWNET
_TOOLS = ("unshare", "nsenter", "ip", "tc")


def why_not() -> str:
    """Why there can be none here, or nothing."""
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if missing:
        return f"no {', '.join(missing)} (of util-linux and iproute2)"
    pid = os.fork()
    if pid == 0:
        os._exit(int(ctypes.CDLL(None).unshare(_NEWNET) != 0))
    return "no namespaces without CAP_SYS_ADMIN" if os.waitpid(pid, 0)[1] else ""


class Host:
    """One of them, until it is closed.

    Args:
        name: Its name, which nothing resolves.
    """

    def __init__(self, name: str) -> None:
        # Its first process reads until its input ends, and so says when it is there.
        command = ["unshare", "--net", "--pid", "--fork", "--mount", "--uts", "--mount-proc", "--kill-child"]
        self._unshare = subprocess.Popen(
            [*command, "sh", "-c", f"hostname {name}; ip link set lo up; echo; exec cat >/dev/null"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._unshare.stdout is not None
        self._unshare.stdout.readline()
        (self.pid,) = map(int, Path(f"/proc/{self._unshare.pid}/task/{self._unshare.pid}/children").read_text().split())

    def join(self, other: Host) -> None:
        """Lays a cable to another: this one is 10.98.0.1 at its end, the other 10.98.0.2."""
        ends = ["netns", str(self.pid)], ["netns", str(other.pid)]
        subprocess.run(["ip", "link", "add", "eth0", *ends[0], "type", "veth", "peer", "eth0", *ends[1]], check=True)
        for host, address in ((self, "10.98.0.1/24"), (other, "10.98.0.2/24")):
            for words in (["addr", "add", address, "dev", "eth0"], ["link", "set", "eth0", "up"]):
                host.run("ip", *words)

    def mute(self) -> None:
        """Loses all that it sends, without a word, as where a cable is pulled out."""
        self.run("tc", "qdisc", "replace", "dev", "eth0", "root", "pfifo", "limit", "0")

    def unmute(self) -> None:
        """Puts the cable in again."""
        self.run("tc", "qdisc", "del", "dev", "eth0", "root")

    def run(self, *command: str) -> None:
        subprocess.run(["nsenter", "-t", str(self.pid), "-n", *command], check=True)

    def inside(self, folder: str | os.PathLike[str]) -> list[str]:
        """The words before a command that is to run there, in a folder."""
        return ["nsenter", "-t", str(self.pid), "-n", "-p", "-m", "-u", f"--wdns={folder}"]

    def start(self, *command: str, environ: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """Runs a command there, in the folder that this process is in."""
        return subprocess.Popen(
            [*self.inside(Path.cwd()), *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environ,
        )

    def processes(self) -> dict[int, str]:
        """The command line of each process there but the first, by its number outside. One that has ended is none."""
        return {pid: words for pid, words in _in_namespace(self.pid) if pid != self.pid and words}

    def outside(self, number: int) -> int:
        """The number outside of the process that has this one there."""
        return next(pid for pid in self.processes() if _number_inside(pid) == number)

    def crash(self) -> None:
        """Kills all that runs there, and what that starts meanwhile; the network still answers."""
        while found := self.processes():
            for pid in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def wait_until_empty(self, seconds: float) -> list[str]:
        """Waits until nothing runs there; returns what still does."""
        poll, waiting = select.poll(), {}
        for pid, words in self.processes().items():
            try:
                fd = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
            waiting[fd] = words
            poll.register(fd, select.POLLIN)
        for fd in [*waiting]:
            for ended, _ in poll.poll(seconds * 1000):
                poll.unregister(ended)
                waiting.pop(ended)
            os.close(fd)
        return [*waiting.values()]

    def close(self) -> None:
        """Ends it, and all that runs there."""
        self._unshare.kill()
        self._unshare.communicate()


def _in_namespace(of: int) -> Iterator[tuple[int, str]]:
    wanted = os.readlink(f"/proc/{of}/ns/pid")
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(folder / "ns/pid") == wanted:
                yield int(folder.name), (folder / "cmdline").read_text().replace("\0", " ")
        except OSError:
            continue


def _number_inside(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[-1]) for line in lines if line.startswith("NSpid:"))
