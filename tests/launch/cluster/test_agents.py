"""Agents connect back to the bridge, each once; what goes wrong is said with the node, and leaves nothing behind."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from notebook_accel.launch.cluster.agent_launcher import ClusterError, Order
from notebook_accel.launch.cluster.bridge import agents
from notebook_accel.launch.cluster.bridge.agents import ConnectedAgent
from notebook_accel.launch.cluster.launchers.local_process import LocalProcess, agent_command
from notebook_accel.launch.engines.contract import NodeInfo, NodeRequest
from tests.live_notebook import wait_until


class Local:
    """Starts real agents on this machine, each of which gets an order with changes; also one start of them."""

    def __init__(self, *changes: Mapping[str, Any], on_order: Callable[[Order], object] = lambda order: None) -> None:
        self._changes = changes
        self._on_order = on_order
        self.processes: list[LocalProcess] = []
        self.outputs: list[str] = []
        """What they have written, once all have ended."""

    def connect(self, timeout: float) -> None:
        pass

    def survey(self) -> list[NodeInfo]:
        return [NodeInfo(str(index), "127.0.0.1", 1, 0) for index in range(2)]

    def start(self, request: NodeRequest, nodes: Sequence[NodeInfo], order: Order) -> Local:
        self._on_order(order)
        self.processes = [LocalProcess(agent_command(), {**order, **changes}) for changes in self._changes]
        return self

    def check(self) -> None:
        if ended := [process.output() for process in self.processes if process.exit_code()]:
            raise ClusterError("".join(ended))

    def stop(self) -> None:
        wait_until(lambda: None not in [process.exit_code() for process in self.processes], 30)
        self.outputs = [process.output() for process in self.processes]
        for process in self.processes:
            process.stop()


def error_of(launcher: Local) -> str:
    """Why its agents are not used. They must have ended."""
    with pytest.raises(ClusterError) as caught:
        agents.start(launcher, NodeRequest(2, cpus=1), {})
    return str(caught.value)


@pytest.fixture
def connect() -> Iterator[Callable[[Local], list[ConnectedAgent]]]:
    """Starts agents, and returns them."""
    with ExitStack() as stack:

        def start(launcher: Local) -> list[ConnectedAgent]:
            started, found = agents.start(launcher, NodeRequest(2, cpus=1), {})
            stack.callback(started.stop)
            for agent in found:
                stack.callback(agent.connection.close)
            return found

        yield start


def test_nodes_come_in_the_order_that_the_launcher_says(connect: Callable[[Local], list[ConnectedAgent]]) -> None:
    found = connect(Local({"node": "b", "name": "bob", "node_rank": 1}, {"node": "a", "name": "ada", "node_rank": 0}))
    assert [(agent.node, agent.host, agent.address) for agent in found] == [
        ("a", "ada", "127.0.0.1"),
        ("b", "bob", "127.0.0.1"),
    ]


def test_strangers_are_ignored_and_the_secret_is_seen_nowhere(
    connect: Callable[[Local], list[ConnectedAgent]], tmp_path: Path
) -> None:
    secrets: list[str] = []
    with ExitStack() as stack:

        def disturb(order: Order) -> None:
            secrets.append(order["secret"])
            for data in (b"", b"GET / HTTP/1.0\r\n\r\n"):
                stranger = stack.enter_context(socket.create_connection(order["bridge"]))
                stranger.sendall(data)

        launcher = Local({"node": "a"}, {"node": "b"}, on_order=disturb)
        assert len(connect(launcher)) == 2
    for folder in Path("/proc").glob("[0-9]*"):
        for name in ("cmdline", "environ"):
            try:
                assert secrets[0].encode() not in (folder / name).read_bytes()
            except OSError:
                continue


def test_a_node_that_joins_twice_is_named() -> None:
    error = error_of(Local({"node": "a", "name": "ada"}, {"node": "a", "name": "ada"}))
    assert error.startswith("ada (127.0.0.1) has joined twice: two agents connected as node 'a'"), error
    assert "Name every machine once" in error


class Impatient(Local):
    """Knows at once that one can't be started."""

    def check(self) -> None:
        raise ClusterError("one can't be started")


def test_an_agent_that_comes_too_late_ends_at_once() -> None:
    launcher = Impatient({"node": "a"})
    assert error_of(launcher) == "one can't be started"
    [output] = launcher.outputs
    assert "Connection refused" in output, "it waited for an answer"


def test_an_agent_of_another_start_is_not_let_in() -> None:
    error = error_of(Local({"node": "a"}, {"node": "b", "name": "bob", "secret": os.urandom(32).hex()}))
    assert error.startswith("bob reached a program at 127.0.0.1:"), error
    assert "do not share a secret. Launch again." in error


def test_a_node_that_cannot_call_back_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    error = error_of(Local({"node": "a"}, {"node": "b", "name": "bob", "bridge": ["127.0.0.1", port]}))
    assert error.startswith(f"bob can't reach the notebook's machine at 127.0.0.1:{port}: "), error
    assert "run the notebook on a machine that the cluster can reach" in error


def test_agents_that_do_not_call_back_are_not_waited_for_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agents, "TIMEOUT", 0.1)
    error = error_of(Local())
    assert "only 0 of 2 machines have connected to 127.0.0.1:" in error
    assert "(none)" in error
    assert "Check that they can reach this machine" in error
