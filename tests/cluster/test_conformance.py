"""The suite of all engines, run against a cluster: two Ray nodes, over which each group is spread."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace

import pytest

from notebook_accel.events import Hello
from notebook_accel.launch.engines.cluster_engine import ClusterEngine
from notebook_accel.launch.engines.contract import NodeRequest, RanksSpec
from notebook_accel.launch.engines.ranks import Ranks
from notebook_accel.launch.wire.event_loop import EventLoop
from tests.cluster.conftest import Cluster
from tests.launch.engines import calls
from tests.launch.engines.conftest import ranks_start_light  # noqa: F401
from tests.launch.engines.driver import Group
from tests.launch.engines.test_conformance import *  # noqa: F403
from tests.launch.own_processes import descriptors
from tests.live_notebook import wait_until

_LEFT_OUT = {
    "test_an_engine_is_what_the_table_says": "a cluster's engine goes by its address",
    "test_a_rank_says_where_it_is": "its host is told apart from others of that name; see below",
    "test_a_rank_has_the_environment_of_its_spec_and_no_other": "machines have their own; see below",
    "test_a_rank_has_the_threads_that_were_set": "of the fork server alone",
    "test_the_engine_of_the_system_is_the_default": "of other engines",
}


class Spread(ClusterEngine):
    """Spreads every group over both nodes."""

    def start(self, spec: RanksSpec, loop: EventLoop) -> Ranks:
        return super().start(replace(spec, node_request=NodeRequest(2, cpus=2)), loop)


@pytest.fixture(scope="session")
def spread(cluster: Cluster) -> Iterator[Spread]:
    found = Spread(cluster.address)
    with Group(found) as group:
        group.wait_for(lambda: group.of(0, Hello), 110)  # for the agents, which no test should
    yield found
    found.close()


@pytest.fixture
def engine(request: pytest.FixtureRequest, spread: Spread) -> Spread:
    if request.function.__name__ in _LEFT_OUT:
        pytest.skip(_LEFT_OUT[request.function.__name__])
    return spread


def test_ranks_say_which_machine_they_are_on(spread: Spread) -> None:
    with Group(spread, 4) as group:
        group.wait_for_hello()
        name = os.uname().nodename
        assert [group.of(rank, Hello)[0].host for rank in range(4)] == [f"{name}#{node}" for node in (0, 0, 1, 1)]


def test_a_rank_has_what_its_spec_says_beside_what_its_machine_has(spread: Spread) -> None:
    with Group(spread, 2, environ={"OF_THE_GROUP": "a=b\nc", "MASTER_ADDR": "nowhere"}) as group:
        found = group.run(calls.environment)
    for own, spec in zip(found, group.spec.environments, strict=True):
        arranged = {"MASTER_ADDR", "MASTER_PORT"}
        assert {name: own[name] for name in spec.keys() - arranged} == {
            name: spec[name] for name in spec.keys() - arranged
        }
        assert not [name for name in own if name.startswith("RAY_") and name not in spec]
    assert found[0]["MASTER_ADDR"] == found[1]["MASTER_ADDR"] == "127.0.0.1"
    assert found[0]["MASTER_PORT"] == found[1]["MASTER_PORT"]


def test_the_bridge_keeps_nothing_of_groups_that_have_ended(spread: Spread) -> None:
    assert spread.bridge is not None
    pid = spread.bridge.process.pid
    with Group(spread, 4) as group:
        group.run(calls.add, 1, 1)
    held = descriptors(pid)
    for _ in range(5):
        with Group(spread, 4) as group:
            group.run(calls.add, 1, 1)
    wait_until(lambda: descriptors(pid) <= held, what=lambda: f"{descriptors(pid)} open, {held} before")
