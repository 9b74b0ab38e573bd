"""What can't work is said before anything is started, with what to do about it."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from notebook_accel.config import LaunchConfig
from notebook_accel.errors import ConfigurationError, HardwareError, LaunchError
from notebook_accel.hardware import detect
from notebook_accel.launch import engines
from notebook_accel.launch.cluster import versions as software
from notebook_accel.launch.cluster.agent_launcher import ClusterError
from notebook_accel.launch.cluster.launchers import ray
from notebook_accel.launch.cluster.versions import versions
from notebook_accel.launch.engines import cluster_engine as engine_module
from notebook_accel.launch.engines.cluster_engine import ClusterEngine
from notebook_accel.launch.engines.contract import NodeInfo, NodeRequest
from notebook_accel.launch.plan import plan
from notebook_accel.launch.show import console
from tests.cluster.conftest import Cluster


@pytest.fixture(scope="module")
def engine(cluster: Cluster):
    found = engines.for_cluster(cluster.address)
    yield found
    found.close()


def make(engine: ClusterEngine, **given: object) -> plan.Plan:
    return plan.make(LaunchConfig(cluster=engine.address, **given), detect(), engine)  # type: ignore[arg-type]


def test_a_plan_counts_what_is_there(engine: ClusterEngine):
    found = make(engine, num_nodes=2)
    assert (found.size, found.device, found.node_request, found.backend) == (8, "cpu", NodeRequest(2, cpus=4), "gloo")
    assert found.device_text == "2 machines with 4 CPUs each"
    assert make(engine, num_nodes=2, num_processes=2, device="cpu").node_request == NodeRequest(2, cpus=1)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"num_nodes": 3}, "asked for 3 machines with 4 CPUs each, found 2"),
        ({"num_nodes": 2, "num_processes": 64}, "asked for 2 machines with 32 CPUs each, found 2"),
        ({"num_nodes": 2, "num_processes": 2, "device": "cuda"}, "asked for 2 machines with 1 GPU each, found 2"),
    ],
)
def test_too_little_is_told_with_what_was_found(engine: ClusterEngine, given: dict[str, object], text: str):
    with pytest.raises(HardwareError) as caught:
        make(engine, **given)
    assert text in str(caught.value)
    assert "4 CPUs, 0 GPUs" in str(caught.value)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"num_nodes": 2, "num_processes": 3}, "3 ranks can't be divided equally among num_nodes=2"),
        ({"num_nodes": 2, "node_rank": 1}, "node_rank=1 has no effect with cluster="),
        ({"num_nodes": 2, "gpus": (0, 1)}, "gpus=(0, 1) has no effect with cluster="),
        ({"device": "tpu"}, "device='tpu' does not work on a cluster"),
        ({"device": "cpu", "mixed_precision": "fp16"}, "mixed_precision='fp16' needs a GPU"),
    ],
)
def test_what_contradicts_a_cluster_is_refused(engine: ClusterEngine, given: dict[str, object], text: str):
    with pytest.raises(ConfigurationError) as caught:
        make(engine, **given)
    assert text in str(caught.value)


def test_a_head_that_is_not_there_is_told_at_once():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    engine = ClusterEngine(f"127.0.0.1:{port}")
    with pytest.raises(LaunchError, match=r"can't be reached: .*refused"):
        engine.nodes()
    engine.close()


def test_where_no_cluster_is_there_is_advice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))  # where Ray notes which cluster a machine is a node of
    monkeypatch.setattr("ray._private.services.find_gcs_addresses", set)  # which looks at all processes
    with pytest.raises(
        ClusterError, match=r"needs this machine to be a node.*ray start --head.*cluster='ray://HOST:10001'"
    ):
        ray.locate("auto")


def test_a_client_server_that_does_not_serve_is_given_up_in_time(monkeypatch: pytest.MonkeyPatch):
    """Something listens, and says nothing. Each attempt is a process of its own, since Ray's may never come back."""
    told: list[str] = []
    monkeypatch.setattr(console.current, "notice", told.append)
    monkeypatch.setattr(engine_module, "JOIN_TIMEOUTS", (0.1, 0.2))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        engine = ClusterEngine(f"ray://127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(LaunchError, match=r"did not start to serve.* within 0.2 s.*GRPC_ENABLE_FORK_SUPPORT=0"):
            engine.nodes()
    assert ["within 0.1 s" in text for text in told] == [True]
    assert engine.bridge is None


@pytest.mark.parametrize("text", ["Starting Ray client server failed. See x.err", "Initialization failure from server"])
def test_a_client_server_that_is_stuck_is_worth_another_attempt(text: str):
    error = ConnectionAbortedError(text)
    assert ray.is_stuck(error)
    assert "issues/63202" in ray.explain("ray://10.0.0.1:10001", error)


def test_a_cluster_of_other_machines_needs_a_token():
    engine = ClusterEngine("ray://192.0.2.55:10001")
    with pytest.raises(LaunchError, match=r"without a token.*RAY_AUTH_MODE=token.*insecure=True"):
        engine.nodes()
    engine.close()


def test_with_a_token_or_where_it_is_meant_it_is_tried(monkeypatch: pytest.MonkeyPatch):
    ray.check_token("10.0.0.1:6379", "10.0.0.1:6379", insecure=True)
    ray.check_token("auto", "127.0.0.1:6379", insecure=False)
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    ray.check_token("10.0.0.1:6379", "10.0.0.1:6379", insecure=False)


def test_another_version_is_refused_by_name():
    theirs = {**versions(), "torch": "2.1.0", "cloudpickle": ""}
    with pytest.raises(ClusterError, match=r"node-b \(10.0.0.2\) has torch 2.1.0 \(here .*\), cloudpickle is not"):
        software.compare("node-b", "10.0.0.2", theirs)


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ("Version mismatch: The cluster was started with: Ray: 2.9", "another version of Ray or Python"),
        ("ModuleNotFoundError: No module named 'notebook_accel'", "pip install 'notebook-accel[cluster]' there"),
        ("Token authentication is enabled but no authentication token was found", "this notebook has no token"),
        ("Unauthenticated: InvalidAuthToken", "did not accept this notebook's token"),
        ("ConnectionError: Could not connect, timed out", "Check the address and the port"),
    ],
)
def test_rays_own_errors_become_advice(said: str, advice: str):
    text = ray.explain("10.0.0.1:6379", RuntimeError(said))
    assert advice in text
    assert said in text


_UNREACHABLE = """
import sys, time
from notebook_accel.launch.cluster.launchers.ray import RayLauncher
from notebook_accel.launch.engines.contract import NodeRequest

launcher = RayLauncher(sys.argv[1], insecure=False)
launcher.connect(60)
order = {"bridge": ["127.0.0.1", int(sys.argv[2])], "secret": "00", "environ": {}}
started = launcher.start(NodeRequest(1, cpus=1), launcher.survey(), order)
try:
    while True:
        started.check()
        time.sleep(0.05)
finally:
    started.stop()
"""


def test_a_notebook_that_agents_cannot_call_back_is_told_so(cluster: Cluster):
    """As behind NAT, through the head's client server. Long: Ray starts a process for the client, and an actor."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    command = [sys.executable, "-c", _UNREACHABLE, cluster.client, str(port)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=100).stderr
    assert "ClusterError: " in said, said
    assert f"can't reach the notebook's machine at 127.0.0.1:{port}: " in said, said
    assert f"Through {cluster.client}, only the notebook has to reach the cluster, which is not enough here." in said


def test_machines_are_told_apart():
    assert str(NodeRequest(2, cpus=4)) == "4 CPUs"
    assert str(NodeRequest(2, cpus=1, gpus=1)) == "1 GPU"
    assert vars(NodeInfo("a", "10.0.0.1", 4, 0)) == {"host": "a", "address": "10.0.0.1", "cpus": 4, "gpus": 0}
