"""A rendezvous on this machine asks no name server."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from notebook_accel.launch.system import network
from tests.live_notebook import without_gloo

RANKS_OWN = threading.Thread(name="notebook-accel")

# In a mount namespace of its own: its only name server is one that never answers, and counts what it is asked.
SILENCE = """
import ctypes, os, socket, subprocess, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
assert libc.unshare(0x00020000) == 0  # CLONE_NEWNS
subprocess.run(["mount", "--make-rprivate", "/"], check=True)
subprocess.run(["mount", "--bind", sys.argv[1], "/etc/resolv.conf"], check=True)
asked = []
silent = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
silent.bind(("127.0.0.53", 53))
def hear():
    while True:
        asked.append(silent.recv(4096))
threading.Thread(target=hear, daemon=True).start()

from notebook_accel import notebook_launcher

def meet():
    import torch.distributed as dist
    dist.init_process_group("gloo")
    dist.barrier()
    return dist.get_rank()

if __name__ == "__main__":
    print(notebook_launcher(meet, num_processes=2), len(asked))
"""


def test_ranks_meet_while_the_name_server_is_silent(tmp_path: Path) -> None:
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-m", "true"], check=False).returncode:
        pytest.skip("this system lets us make no mount namespace")
    configuration = tmp_path / "resolv.conf"
    configuration.write_text("nameserver 127.0.0.53\n")
    script = tmp_path / "meet.py"
    script.write_text(SILENCE)
    done = subprocess.run(
        [sys.executable, script, configuration], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    if "Address already in use" in done.stderr:
        pytest.skip("this machine has a name server of its own at 127.0.0.53")
    assert without_gloo(done.stdout).split("\n")[0] == "[0, 1] 0", done.stderr


def test_names_are_looked_up_as_before_afterwards() -> None:
    with network.without_name_server("127.0.0.1"):
        assert socket.gethostbyname("localhost") == "127.0.0.1"
    assert socket.gethostbyname("localhost") == "127.0.0.1"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            "passwd: files\nhosts:          files mdns4_minimal [NOTFOUND=return] dns # local first\n",
            "files mdns4_minimal [NOTFOUND=return] dns",
        ),
        ("passwd: files\n", "dns [!UNAVAIL=return] files"),
        (None, "dns [!UNAVAIL=return] files"),
    ],
)
def test_the_order_of_look_ups_is_read_from_the_system(
    text: str | None, found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "nsswitch.conf"
    if text is not None:
        path.write_text(text)
    monkeypatch.setattr(network, "CONFIGURATION", path)
    configured: list[tuple[bytes, bytes]] = []
    monkeypatch.setattr(network, "lookup_configurer", lambda: lambda *given: configured.append(given))
    monkeypatch.setattr(threading, "enumerate", lambda: [threading.current_thread(), RANKS_OWN])
    with network.without_name_server("127.0.0.1"):
        assert configured == [(b"hosts", b"files")]
    assert configured[1:] == [(b"hosts", found.encode())]


def test_threads_of_the_user_look_names_up_as_ever_while_a_rank_joins(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system can change the order of look-ups only for all threads of a process."""
    configured: list[tuple[bytes, bytes]] = []
    monkeypatch.setattr(network, "lookup_configurer", lambda: lambda *given: configured.append(given))
    ends = threading.Event()
    tracker = threading.Thread(target=ends.wait, name="tracker")
    tracker.start()
    with network.without_name_server("127.0.0.1"):
        assert not configured
    ends.set()
    tracker.join()
