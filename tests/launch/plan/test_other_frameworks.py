"""What ranks of frameworks with a rendezvous of their own are told."""

from __future__ import annotations

import errno
import json
import socket
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from notebook_accel.launch.engines.contract import RanksSpec, Rendezvous
from notebook_accel.launch.engines.in_process import InProcessEngine
from notebook_accel.launch.plan import other_frameworks
from notebook_accel.launch.system.network import ReservedPorts
from notebook_accel.launch.wire.event_loop import EventLoop


@pytest.fixture
def ports() -> Iterator[ReservedPorts]:
    made = ReservedPorts()
    yield made
    made.close()


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(other_frameworks, "is_installed", lambda package: True)


def listen(port: int, *, shared: bool, address: str = "127.0.0.1") -> socket.socket:
    server = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    try:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, int(shared))
        server.bind((address, port))
        server.listen()
    except OSError:
        server.close()
        raise
    return server


def test_a_port_is_held_for_a_server_that_shares_it_and_for_no_other() -> None:
    ports = ReservedPorts()
    port, other = ports.take(), ports.take()
    assert port != other
    with pytest.raises(OSError, match=r".") as refused:
        listen(port, shared=False)
    assert refused.value.errno == errno.EADDRINUSE
    with pytest.raises(ConnectionRefusedError):  # who comes too early is told so, and tries again
        socket.create_connection(("127.0.0.1", port), timeout=5)
    with listen(port, shared=True), socket.create_connection(("127.0.0.1", port), timeout=5):
        pass
    ports.close()
    listen(other, shared=False).close()


@pytest.mark.parametrize("address", ["0.0.0.0", "127.0.0.2", "::", "::1"])
def test_a_port_is_held_on_all_addresses_as_grpc_binds_it_on_all(address: str, ports: ReservedPorts) -> None:
    if ":" in address and not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    port = ports.take()
    with pytest.raises(OSError, match=r".") as refused:
        listen(port, shared=False, address=address)
    assert refused.value.errno == errno.EADDRINUSE
    listen(port, shared=True, address=address).close()


@pytest.mark.usefixtures("installed")
def test_each_worker_of_tensorflow_finds_all_and_its_place(ports: ReservedPorts) -> None:
    told = other_frameworks.variables(3, "cpu", ports, {})
    configurations = [json.loads(each["TF_CONFIG"]) for each in told]
    (workers,) = {tuple(each["cluster"]["worker"]) for each in configurations}
    assert [each["task"] for each in configurations] == [{"type": "worker", "index": rank} for rank in range(3)]
    assert {worker.partition(":")[0] for worker in workers} == {"127.0.0.1"}
    assert len(set(workers)) == 3
    assert {each["TF_GRPC_REUSE_PORT"] for each in told} == {"true"}


@pytest.mark.usefixtures("installed")
def test_ranks_of_jax_have_one_coordinator_and_the_device_of_the_launch(ports: ReservedPorts) -> None:
    told = other_frameworks.variables(2, "cpu", ports, {})
    assert len({each["JAX_COORDINATOR_PORT"] for each in told}) == 1
    assert [each["JAX_PLATFORMS"] for each in told] == ["cpu"] * 2
    assert "JAX_PLATFORMS" not in other_frameworks.variables(2, "cuda", ports, {})[0]


@pytest.mark.usefixtures("installed")
def test_what_the_user_has_set_is_left_alone(ports: ReservedPorts) -> None:
    environ = {"TF_CONFIG": "{}", "JAX_PLATFORMS": "cuda"}
    told = other_frameworks.variables(1, "cpu", ports, environ)[0]
    assert told.keys() == {"JAX_COORDINATOR_PORT"}
    assert other_frameworks.variables(1, "cpu", ports, {**environ, "JAX_COORDINATOR_ADDRESS": "a:1"}) == [{}]


@pytest.mark.usefixtures("installed")
def test_several_machines_are_told_no_ports() -> None:
    assert other_frameworks.variables(2, "cpu", None, {}) == [{"JAX_PLATFORMS": "cpu"}] * 2


def test_nothing_is_set_for_what_is_not_installed(ports: ReservedPorts, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = [replace(each, package="no_such_package_here") for each in other_frameworks.FRAMEWORKS]
    monkeypatch.setattr(other_frameworks, "FRAMEWORKS", missing)
    assert other_frameworks.variables(2, "cpu", ports, {}) == [{}, {}]
    assert other_frameworks.is_installed("json")
    monkeypatch.setitem(sys.modules, "no_such_package_here", None)
    assert not other_frameworks.is_installed("no_such_package_here")


def test_ports_are_let_go_with_the_group(ports: ReservedPorts) -> None:
    rendezvous = Rendezvous(host="127.0.0.1", port=4321, listener=None, ports=ports)

    class Refusing(InProcessEngine):
        def _start(self, spec: RanksSpec, loop: EventLoop) -> Any:
            raise OSError("no ranks")

    spec = RanksSpec(environments=[{}], rendezvous=rendezvous, heartbeat=1.0)
    port = ports.take()
    with pytest.raises(OSError, match="no ranks"):
        Refusing().start(spec, EventLoop())
    listen(port, shared=False).close()
    port = ports.take()
    InProcessEngine().start(spec, EventLoop()).close()
    listen(port, shared=False).close()
