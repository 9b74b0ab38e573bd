"""Whose connections a rank's group may have."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from notebook_accel import debug_launcher, notebook_launcher
from notebook_accel.errors import RankError
from notebook_accel.launch.rank.patches import gloo_peers
from notebook_accel.launch.system.network import knows_owners

pytestmark = pytest.mark.skipif(not knows_owners(), reason="this system does not report who owns a socket")

CONNECT = """
import os, socket, sys
os.setuid(int(sys.argv[1]))
with socket.socket() as connection:
    connection.connect(("127.0.0.1", int(sys.argv[2])))
    print("connected", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as found:
        yield found


@pytest.mark.skipif(os.getuid() != 0, reason="only root can start a process of another user")
@pytest.mark.parametrize("user", [0, 65534])
def test_a_connection_of_another_user_ends_the_group(listener: socket.socket, user: int) -> None:
    port = listener.getsockname()[1]
    command = [sys.executable, "-c", CONNECT, str(user), str(port)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        with listener.accept()[0]:
            process.stdout.readline()
            if user == 0:
                gloo_peers.check({port})
            else:
                gloo_peers.check({port + 1})  # what the user's code has accepted elsewhere is its own affair
                with pytest.raises(RuntimeError, match="another user's process has connected"):
                    gloo_peers.check({port})
            process.stdin.close()


def join_with_a_stranger() -> None:
    import torch.distributed as dist

    gloo_peers.OwnerQuery.is_own = lambda *_: False  # type: ignore[method-assign]
    dist.init_process_group("gloo")


def test_each_new_group_of_a_rank_is_checked() -> None:
    with pytest.raises(RankError, match="does not belong to a process of this user"):
        debug_launcher(join_with_a_stranger)


def join_and_check_late() -> tuple[float, float]:
    """When this rank has checked a new group, and when it goes on."""
    import torch.distributed as dist

    check = gloo_peers.check

    def check_late(ports: set[int]) -> None:
        time.sleep(0.1 * dist.get_rank())
        check(ports)
        checked.append(time.monotonic())

    checked: list[float] = []
    dist.init_process_group("gloo")
    gloo_peers.check = check_late
    dist.new_group()
    return checked[0], time.monotonic()


def test_no_rank_goes_on_and_may_close_its_group_before_all_have_checked_it() -> None:
    results = notebook_launcher(join_and_check_late, num_processes=2, device="cpu")
    checked, gone_on = zip(*results, strict=True)
    assert max(checked) <= min(gone_on)
