"""How the nodes of a launch find each other in the store of node 0, where they begin and end at different times."""

from __future__ import annotations

import contextlib
import socket
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from notebook_accel.launch.server import rendezvous, store
from tests.free_ports import free_port
from tests.live_notebook import wait_until

HOST = "127.0.0.1"
BOUND = 60.0
"""Seconds, fewer than a launch waits for its nodes."""


class Node:
    """A machine: its launches join from threads."""

    def __init__(self, rank: int, port: int, pool: ThreadPoolExecutor, driver: str = "") -> None:
        self._own = {"node_rank": rank, "driver": driver or f"driver of {rank}"}
        self._shared = {"host": HOST, "port": port, "num_nodes": 2, "size": 1, "run_id": "none", "attempt": 0}
        self._pool = pool
        self.closed = threading.Event()

    def begin(self, hosted: Any = None, *, join_timeout: float = BOUND, **changes: Any) -> Future[str | None]:
        """Has it join for a launch; `hosted` is the store, on node 0."""
        self.closed = threading.Event()
        request = self._shared | self._own | {"join_timeout": join_timeout} | changes
        return self._pool.submit(rendezvous.join, request, hosted, self.closed)


class Counted:
    """A store that counts how often each of its methods was called with each name."""

    def __init__(self, hosted: Any) -> None:
        self._hosted = hosted
        self.calls: Counter[tuple[str, str]] = Counter()

    def __getattr__(self, method: str) -> Callable[..., Any]:
        def call(name: Any, *others: Any) -> Any:
            self.calls[method, str(name).rpartition("/")[2]] += 1
            return getattr(self._hosted, method)(name, *others)

        return call


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def nodes(port: int) -> Iterator[list[Node]]:
    pool = ThreadPoolExecutor()
    made = [Node(rank, port, pool) for rank in range(2)]
    yield made
    for node in made:
        node.closed.set()
    pool.shutdown()


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The connections to a store of another node, in the order in which they were made."""
    made: list[Any] = []
    connect = rendezvous.connect

    def connect_and_note(*given: Any) -> Any:
        made.append(connect(*given))
        return made[-1]

    monkeypatch.setattr(rendezvous, "connect", connect_and_note)
    return made


@contextlib.contextmanager
def hosting(port: int) -> Iterator[Any]:
    """A store, as node 0 has it for one launch."""
    listener = socket.create_server((HOST, port)).detach()
    hosted = store.host({"host": HOST, "port": port, "join_timeout": BOUND}, listener)
    yield weakref.proxy(hosted)  # so that it closes here


def both(first: Future[str | None], second: Future[str | None]) -> list[str | None]:
    return [each.result(BOUND) for each in (first, second)]


def test_a_node_that_is_early_for_the_next_launch_waits_for_the_end_of_the_last(
    nodes: list[Node], port: int, connections: list[Any]
) -> None:
    with hosting(port) as last:
        assert both(nodes[0].begin(last), nodes[1].begin()) == ["", ""]
        early = nodes[1].begin()
        wait_until(lambda: len(connections) >= 4, BOUND)  # it has met the store of the last launch, and is back
        assert not early.done()
    with hosting(port) as following:
        assert both(nodes[0].begin(following), early) == ["", ""]


def test_a_node_that_starts_again_before_node_0_does_meets_its_next_attempt(
    nodes: list[Node], port: int, connections: list[Any]
) -> None:
    with hosting(port) as last:
        assert both(nodes[0].begin(last), nodes[1].begin()) == ["", ""]
        early = nodes[1].begin(attempt=1)
        wait_until(lambda: last.check(["notebook-accel/none/1/size/1"]), BOUND)  # it waits in the old store
    wait_until(lambda: early.done() or len(connections) >= 2, BOUND)
    with hosting(port) as following:
        assert both(nodes[0].begin(following, attempt=1), early) == ["", ""]


def test_another_machine_with_the_same_rank_is_refused_at_once(nodes: list[Node], port: int) -> None:
    with hosting(port) as hosted:
        assert both(nodes[0].begin(hosted), nodes[1].begin()) == ["", ""]
        error = nodes[1].begin(driver="another").result(BOUND / 2)
        assert error == "another machine has already joined with node_rank=1: give each machine its own"


def test_a_launch_that_runs_on_is_named_once_the_next_has_waited_long_enough(nodes: list[Node], port: int) -> None:
    with hosting(port) as hosted:
        assert both(nodes[0].begin(hosted), nodes[1].begin()) == ["", ""]
        error = nodes[1].begin(join_timeout=0.2).result(BOUND)
        assert error == "another machine has already joined with node_rank=1: give each machine its own"


def test_a_launch_that_has_ended_takes_no_place_in_a_later_store(
    nodes: list[Node], port: int, connections: list[Any]
) -> None:
    abandoned = nodes[1].begin()
    nodes[1].closed.set()
    with hosting(port) as hosted:
        assert abandoned.result(BOUND) is None
        assert not hosted.check(["notebook-accel/none/0/node/1"])


def test_a_launch_that_ends_while_it_waits_lets_go_of_the_store(nodes: list[Node], port: int) -> None:
    with hosting(port) as hosted:
        counted = Counted(hosted)
        waiting = nodes[0].begin(counted)
        wait_until(lambda: counted.calls["check", "1']"] >= 2, BOUND)
        nodes[0].closed.set()
        assert waiting.result(BOUND) is None


def test_node_0_begins_once_the_other_has_read_who_takes_part(nodes: list[Node], port: int) -> None:
    """Its launch may be over at once, and the store with it."""
    with hosting(port) as hosted:
        hosted.set("notebook-accel/none/0/size/1", "1")  # the other has joined, and has not read yet
        counted = Counted(hosted)
        first = nodes[0].begin(counted)
        wait_until(lambda: counted.calls["add", "readers"] >= 3, BOUND)
        assert not first.done()
        hosted.add("notebook-accel/none/0/readers", 1)
        assert first.result(BOUND) == ""


def test_an_error_that_is_not_of_the_network_ends_the_wait_at_once(nodes: list[Node]) -> None:
    found = nodes[1].begin(port="none").result(BOUND)
    assert found is not None
    assert found.startswith(f"the rendezvous of the machines at {HOST}:none failed: ")
    assert "Check that the same launch runs on the machine with node_rank=0" in found
