"""Which ranks a restart leaves out, on machines and clusters that are not there."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from notebook_accel import events, hardware
from notebook_accel.config import LaunchConfig
from notebook_accel.errors import ConfigurationError, HardwareError
from notebook_accel.hardware import Hardware
from notebook_accel.launch import engines
from notebook_accel.launch.engines.contract import NodeInfo
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.plan import plan
from notebook_accel.launch.plan.elastic import Remaining, without_leaving
from tests.hardware.fakes import FakeGpu, FakeNvml
from tests.hardware.rows import use_nvidia_gpus
from tests.launch.plan.test_plan import machine

FORKSERVER = engines.get("forkserver")
SIGKILLED = events.Exited(code=None, signal=signal.SIGKILL)


class Node:
    """An engine of a cluster, whose nodes a test sets."""

    name = "cluster"
    isolated = True
    max_ranks = None

    def __init__(self, *hosts: str) -> None:
        self.hosts = hosts

    def nodes(self, least: int) -> list[NodeInfo]:
        del least
        return [NodeInfo(host, host, cpus=2, gpus=0) for host in self.hosts]


def raised(text: str, *, from_peer: bool = False) -> events.Failed:
    return events.Failed([events.Raised("RuntimeError", text, [])], at=1.0, from_peer=from_peer)


def attempt(job: Job, number: int, size: int, ends: dict[int, events.Event], *, steps: int = 0) -> None:
    """An attempt that trains from step 10 on, until some ranks end by themselves and the others are killed."""
    job.apply(None, events.AttemptStarted(number, size, job.step))
    job.apply(None, events.TrainingStarted(10))
    for rank in range(size):
        job.apply(rank, events.Heartbeat(1, step=10 + steps))
        if rank not in ends:
            job.apply(rank, events.Signalled(signal.SIGKILL))
        job.apply(rank, ends.get(rank, SIGKILLED))


class Launch:
    """A launch of 4 ranks, and what is left of it."""

    def __init__(self, library: FakeNvml, engine: Any = FORKSERVER, **given: Any) -> None:
        config = LaunchConfig(**{"max_restarts": 9, "min_processes": 2, **given})
        self.library = library
        self.plan = plan.make(config, hardware.detect({}), engine)
        self.job = Job("train", 0, self.plan.size, local_size=self.plan.local_size)
        self.remaining = Remaining(self.plan, engine, {})
        self.attempts = 0

    def fail(self, ends: dict[int, events.Event], *, steps: int = 0, oom_killed: bool = False) -> plan.Plan:
        """The plan after an attempt."""
        attempt(self.job, self.attempts, self.plan.size, ends, steps=steps)
        self.attempts += 1
        self.plan = self.remaining.plan_after(self.job, oom_killed=oom_killed)
        return self.plan


def chosen(launch: Launch) -> str:
    """The numbers of the GPUs of the planned ranks, on the whole machine."""
    assert launch.plan.config.gpus is not None
    left = hardware.detect({}).gpus
    return "".join(str(int(left[index].uuid[4:12], 16)) for index in launch.plan.config.gpus)


LaunchOn = Callable[..., Launch]


@pytest.fixture
def launch_on(monkeypatch: pytest.MonkeyPatch) -> LaunchOn:
    """Plans a launch on a machine with so many GPUs."""

    def make(count: int, engine: Any = FORKSERVER, **given: Any) -> Launch:
        return Launch(use_nvidia_gpus(monkeypatch, *[FakeGpu("H200", 2**37)] * count), engine, **given)

    return make


@pytest.mark.smoke
def test_ranks_that_may_come_back_do(launch_on: LaunchOn) -> None:
    launch = launch_on(0, num_processes=4)
    for steps, ends in ((5, {1: SIGKILLED}), (5, {1: SIGKILLED}), (5, {2: raised("a mistake")})):
        assert launch.fail(ends, steps=steps).size == 4  # type: ignore[arg-type]
    with_peer = {0: raised("CUDA error: device busy or unavailable"), 1: raised("connection closed", from_peer=True)}
    assert launch.fail({**with_peer}).size == 3


def test_a_gpu_that_is_gone_or_refuses_is_left_out_and_one_that_is_back_is_used(
    launch_on: LaunchOn,
) -> None:
    launch = launch_on(4)
    launch.library.lose(1)
    launch.fail({1: SIGKILLED}, steps=3)
    assert chosen(launch) == "023"
    launch.library.lose()
    launch.fail({1: SIGKILLED}, steps=3)
    assert chosen(launch) == "0123"
    refused = {2: raised("RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable")}
    launch.fail({**refused})
    assert chosen(launch) == "013"
    mistake = {2: raised("RuntimeError: CUDA error: device-side assert triggered")}
    launch.fail({**mistake}, steps=3)
    assert chosen(launch) == "013"
    again = {2: raised("RuntimeError: CUDA error: uncorrectable ECC error encountered")}
    launch.fail({**again})
    assert chosen(launch) == "01"


def test_a_rank_is_known_by_its_gpu_while_another_gpu_is_gone(launch_on: LaunchOn) -> None:
    launch = launch_on(4)
    launch.library.lose(1)
    launch.fail({1: SIGKILLED}, steps=3)
    lost = {1: raised("CUDA error: GPU is lost")}
    assert launch.fail({**lost}, steps=3).size == 2
    assert chosen(launch) == "03"
    launch.library.lose()
    launch.fail({0: SIGKILLED}, steps=3)
    assert chosen(launch) == "013"


def test_a_rank_is_known_by_its_gpu_when_ranks_that_share_it_change_places(launch_on: LaunchOn) -> None:
    launch = launch_on(2, gpus=(0, 1, 0, 1), min_processes=1)
    launch.fail({1: raised("CUDA error: hardware stack error")})
    assert launch.plan.config.gpus == (0, 1, 0)
    launch.fail({1: raised("CUDA error: hardware stack error")})
    assert launch.plan.config.gpus == (0, 0)


def test_ranks_that_share_gpus_take_turns_on_those_that_are_left(launch_on: LaunchOn) -> None:
    launch = launch_on(2, gpus=(0, 1, 0, 1))
    planned = launch.fail({1: raised("CUDA error: hardware stack error")})
    assert (planned.size, planned.config.gpus, planned.backend) == (3, (0, 1, 0), "gloo")
    launch.library.lose(0)
    with pytest.raises(HardwareError, match=r"only 1 of 4 ranks can start, which is fewer than min_processes=2"):
        launch.fail({0: SIGKILLED}, steps=1)


def test_ranks_that_were_killed_for_lack_of_memory_are_left_out(launch_on: LaunchOn) -> None:
    launch = launch_on(0, num_processes=4)
    assert launch.fail({3: SIGKILLED}, steps=5, oom_killed=True).size == 3
    with pytest.raises(HardwareError, match="only 1 of 4 ranks"):
        launch.fail({0: SIGKILLED, 1: SIGKILLED}, steps=5, oom_killed=True)


def test_a_rank_that_fails_twice_before_its_first_step_is_left_out_unless_all_do(
    launch_on: LaunchOn,
) -> None:
    launch = launch_on(0, num_processes=4)
    assert launch.fail({2: raised("no")}).size == 4
    assert launch.fail({1: raised("no")}).size == 4
    assert launch.fail({1: raised("no")}, steps=1).size == 4
    assert launch.fail({1: raised("no")}).size == 4
    assert launch.fail({1: raised("no")}).size == 3
    everywhere: dict[int, events.Event] = dict.fromkeys(range(3), raised("no"))
    assert [launch.fail(everywhere).size for _ in range(3)] == [3, 3, 3]
    # The third rank is now the fourth of the first attempt.
    assert launch.fail({2: raised("no")}).size == 2


@pytest.mark.parametrize(
    "end", [events.Exited(code=None, lost="b: no answer"), events.NodeLeaving()], ids=["lost", "leaving"]
)
def test_a_machine_that_is_gone_is_left_out_with_its_ranks(end: events.Event, launch_on: LaunchOn) -> None:
    engine = Node("a", "b", "c")
    launch = launch_on(0, engine, cluster="auto", num_nodes=3, num_processes=6, min_processes=3)
    lost: Sequence[tuple[int, str]] = ((2, "b"), (3, "b"))
    for rank, host in lost:
        launch.job.apply(rank, events.Hello(1, host))
    attempt(launch.job, 0, 6, {})
    for rank, host in lost:
        launch.job.apply(rank, events.Hello(1, host))
        launch.job.apply(rank, end)
    planned = launch.remaining.plan_after(launch.job, oom_killed=False)
    assert (planned.size, planned.world_size, planned.local_size, planned.config.num_nodes) == (4, 4, 2, 2)
    assert planned.node_request is not None
    assert (planned.node_request.count, planned.node_request.excluded) == (2, ("b",))
    engine.hosts = ("a", "b")
    with pytest.raises(HardwareError, match="only 2 of 6 ranks can start, which is fewer than min_processes=3"):
        launch.remaining.plan_after(launch.job, oom_killed=False)


def test_all_ranks_move_to_a_spare_machine_if_there_is_one() -> None:
    engine = Node("a", "b", "c")
    planned = plan.make(LaunchConfig(cluster="auto", num_nodes=2, num_processes=4, max_restarts=2), machine(), engine)
    job = Job("train", 0, planned.size, local_size=planned.local_size)
    for host in ("b", "c"):
        job.apply(None, events.AttemptStarted(0, 4))
        for rank in (2, 3):
            job.apply(rank, events.Hello(1, host))
            job.apply(rank, events.NodeLeaving())
        if host == "c":
            break
        planned = without_leaving(planned, job, engine)
        assert planned.size == 4
        assert planned.node_request is not None
        assert (planned.node_request.count, planned.node_request.excluded) == (2, ("b",))
    with pytest.raises(HardwareError, match="without b, c, the cluster has 1 of the 2 machines"):
        without_leaving(planned, job, engine)


@pytest.mark.parametrize(
    ("found", "given", "message"),
    [
        (machine(2), {"min_processes": 3}, "min_processes=3 is more than the 2 ranks that this launch starts"),
        (machine(mps=True), {"min_processes": 1}, "min_processes=1 does not work on device='mps'"),
        (machine(2), {"num_nodes": 2}, "min_processes=2 does not work with num_nodes=2"),
    ],
)
def test_a_launch_whose_ranks_cannot_be_fewer_is_refused(found: Hardware, given: dict[str, Any], message: str) -> None:
    config = LaunchConfig(**{"max_restarts": 9, "min_processes": 2, **given})
    with pytest.raises(ConfigurationError, match=message):
        plan.make(config, found, FORKSERVER)
