"""What a warm rank does before there is a launch, of which the launch must see nothing."""

import json
import subprocess
import sys

import pytest

from tests.live_notebook import without_gloo

SCRIPT = """
import json, os, sys, warnings
import psutil, torch.distributed as dist
from torch._C._distributed_c10d import _dump_fr_trace_json
from notebook_accel.launch.rank import rehearsal

def state():
    world = {name: repr(value) for name, value in vars(dist.distributed_c10d._world).items()}
    this = psutil.Process()
    return sys.excepthook, dict(os.environ), world, this.num_threads(), this.num_fds()

def init(*args, **options):
    init_process_group(*args, **options)
    hosts.extend(each.laddr.ip for each in psutil.Process().net_connections("tcp"))

def join(**environment):
    hosts.clear()
    os.environ.update(environment)
    before = state()
    rehearsal.join_group()
    assert state() == before, (state(), before)
    for name in environment:
        del os.environ[name]
    return sorted(hosts)

hosts = []
init_process_group, dist.init_process_group = dist.init_process_group, init
warnings.simplefilter("error")
found = {
    "plain": join(),
    "again": join(),
    "another interface": join(GLOO_SOCKET_IFNAME="eth_of_another_machine"),
    "debug": join(TORCH_DISTRIBUTED_DEBUG="DETAIL"),
}
os.listdir = lambda path=".", listdir=os.listdir: listdir(path) + ["nvidia0"] * (path == "/dev")
found["device"] = join()
found["collectives"] = json.loads(_dump_fr_trace_json()).get("entries", [])
print(json.dumps(found))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="it joins a group only where devices are files in /dev")
def test_a_warm_rank_joins_a_group_on_the_loopback_interface_and_leaves_no_trace() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], check=True, capture_output=True, text=True, timeout=100)
    joined = ["127.0.0.1"]
    assert json.loads(without_gloo(done.stdout)) == {
        "plain": joined,
        "again": joined,
        "another interface": joined,
        "debug": [],
        "device": [],
        "collectives": [],
    }
