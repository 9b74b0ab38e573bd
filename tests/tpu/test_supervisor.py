"""The process that calls torch_xla.launch, and waits for that before there is a launch."""

import os

import psutil

from notebook_accel.events import Hello
from notebook_accel.hardware import tpus
from notebook_accel.launch import engines
from tests.launch.engines import calls
from tests.launch.engines.conftest import ranks_start_light  # noqa: F401
from tests.launch.engines.driver import Group
from tests.live_notebook import wait_until


def supervisor_of(group: Group) -> psutil.Process:
    group.wait_for(lambda: group.of(0, Hello), 110)  # the first start waits for the server to import torch_xla
    parent = psutil.Process(group.of(0, Hello)[0].pid).parent()
    assert parent
    return parent


def test_a_launch_finds_its_supervisor_waiting_which_has_opened_nothing() -> None:
    engine = engines.get("xla")
    with Group(engine) as group:
        used = supervisor_of(group)
        server = used.parent()
        assert server
        group.run(calls.add, 1, 1)

    def spares() -> list[psutil.Process]:  # the store shares the server's session
        return [child for child in server.children() if child != used and os.getsid(child.pid) == child.pid]

    # It rehearses first, with a thread and a process.
    wait_until(lambda: [(s.num_threads(), s.children()) for s in spares()] == [(1, [])], 30)
    [spare] = spares()
    assert not tpus.held(spare.pid)
    with Group(engine, 2) as group:
        assert supervisor_of(group) == spare
        assert group.run(calls.add, 1, 1) == [2, 2]


def test_a_launch_goes_on_without_its_spare() -> None:
    engine = engines.get("xla")
    with Group(engine) as group:
        used = supervisor_of(group)
        server = used.parent()
        assert server
        for child in server.children():
            if child != used and os.getsid(child.pid) == child.pid:
                child.kill()
        assert group.run(calls.add, 1, 1) == [2]
    with Group(engine) as group:
        assert supervisor_of(group) != used
        assert group.run(calls.add, 1, 1) == [2]
