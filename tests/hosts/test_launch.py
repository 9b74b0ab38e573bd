"""`notebook-accel launch` on two machines: network and process namespaces with a cable between them.

`scripts/test-hosts` runs this.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.hosts import host
from tests.hosts.host import Host

pytestmark = pytest.mark.skipif(bool(host.why_not()), reason=host.why_not() or "there are namespaces")

BOUND = 60.0
"""Seconds for an end that takes one, on a machine with other work."""
TRAIN = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
tensor = torch.ones(1)
dist.all_reduce(tensor)
print(f"rank {dist.get_rank()} of {int(tensor)}", flush=True)
while True:
    dist.all_reduce(tensor)
"""


@pytest.fixture(scope="module")
def hosts() -> Iterator[tuple[Host, Host]]:
    first, second = Host("first"), Host("second")
    first.join(second)
    yield first, second
    for each in (first, second):
        each.close()


def launch(on: Host, *options: str, address: str = "10.98.0.1", port: int = 29500) -> subprocess.Popen[str]:
    words = ["--quiet", "--cpu", "--num_machines=2", "--num_processes=2"]
    where = [f"--main_process_ip={address}", f"--main_process_port={port}"]
    return on.start(sys.executable, "-m", "notebook_accel", "launch", *words, *where, *options, "train.py")


def read_until(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdout is not None
    seen = ""
    while text not in seen:
        line = process.stdout.readline()
        assert line, seen
        seen += line


def agents(on: Host) -> list[int]:
    """The command line there, and the process of torch's launcher."""
    return sorted(pid for pid, words in on.processes().items() if " launch --quiet " in words)


def rank(on: Host) -> int:
    (found,) = [pid for pid, words in on.processes().items() if words.endswith("wrapper.py train.py ")]
    return found


@pytest.mark.parametrize("victim", ["a rank", "torch's launcher", "the command line and torch's launcher"])
def test_nothing_is_left_on_either_machine(
    hosts: tuple[Host, Host], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, victim: str
) -> None:
    """Long: on both machines torch's launcher imports torch, and so do the ranks."""
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(TRAIN)
    if victim == "a rank":
        launches = [launch(each, f"--machine_rank={number}") for number, each in enumerate(hosts)]
    else:
        launches = [launch(each, "--rdzv_backend=c10d") for each in hosts]
    for each in launches:
        read_until(each, " of 2")
    on = hosts[0]  # where the others meet
    killed = {"a rank": [rank(on)], "torch's launcher": agents(on)[1:]}.get(victim, agents(on))
    assert killed
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    for each in hosts:
        assert each.wait_until_empty(BOUND) == []
    said = [each.communicate(timeout=BOUND)[0] for each in launches]
    assert launches[0].returncode in (137, -signal.SIGKILL), said
    assert launches[1].returncode in (1, 2), (
        said
    )  # its ranks fail, unless it hears first that the meeting point is gone


def test_machines_that_do_not_meet_say_so_in_time(
    hosts: tuple[Host, Host], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long: four launches wait for the others until their limits."""
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(TRAIN)
    first, second = hosts
    waits = "--rdzv_conf=timeout=1,read_timeout=1,join_timeout=1"
    launches = {
        "alone": launch(first, "--machine_rank=0", waits, port=29501),
        "another port": launch(second, "--machine_rank=1", waits, port=29502),
        "nobody there, by itself": launch(second, "--rdzv_backend=c10d", waits, port=29503),
        "another network": launch(second, "--machine_rank=1", waits, address="10.77.0.9"),
    }
    with ThreadPoolExecutor() as pool:
        said = dict(
            zip(launches, pool.map(lambda each: each.communicate(timeout=BOUND)[0], launches.values()), strict=True)
        )
    assert {name: each.returncode for name, each in launches.items()} == dict.fromkeys(launches, 2), said
    for name, reason in {
        "alone": "1/2 clients joined",
        "another port": "(10.98.0.1, 29502)",
        "nobody there, by itself": "(10.98.0.1, 29503)",
        "another network": "10.77.0.9 cannot be reached from this machine",
    }.items():
        errors = [line for line in said[name].splitlines() if line.startswith("error: ")]
        assert len(errors) == 1, said[name]
        assert reason in errors[0]
