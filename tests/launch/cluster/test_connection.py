"""The connection that agents call on: only who knows the secret is let in, and only frames come out."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, answer_challenge
from pathlib import Path
from typing import Any

import pytest

from notebook_accel.errors import StreamError
from notebook_accel.launch.cluster import connection
from notebook_accel.launch.cluster.connection import FrameConnection
from notebook_accel.launch.cluster.protocol import Frame

SECRET = b"s" * 32
MUCH = b"b" * 10_000_000
"""More than sockets hold."""


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as found:
        yield found


Both = Callable[..., tuple[FrameConnection, FrameConnection]]


@pytest.fixture
def both(listener: socket.socket) -> Iterator[Both]:
    """The ends of a connection: that of the bridge, and that of an agent which thinks that this is the secret."""
    opened: list[FrameConnection] = []

    def connect(secret: bytes = SECRET) -> tuple[FrameConnection, FrameConnection]:
        called: list[FrameConnection] = []
        caller = _aside(lambda: called.append(connection.call(*listener.getsockname(), secret)))
        try:
            opened.append(connection.answer(listener.accept()[0], SECRET))
        finally:
            caller.join(10)
            opened.extend(called)
        return opened[0], opened[1]

    yield connect
    for end in opened:
        end.close()


def _aside(act: Callable[[], object]) -> threading.Thread:
    def quietly() -> None:
        with contextlib.suppress(OSError, EOFError, connection.AuthenticationError):
            act()

    thread = threading.Thread(target=quietly, daemon=True)
    thread.start()
    return thread


def heard(end: FrameConnection, count: int) -> list[Frame]:
    """So many frames, however they arrive."""
    found: list[Frame] = []
    while len(found) < count:
        found += end.receive(wait=True)
    return found


def test_frames_travel_both_ways(both: Both) -> None:
    ours, theirs = both()
    told = [({"op": "said", "rank": 0}, [b"a" * 100_000, b""]), ({"op": "silent"}, []), ({"op": "payload"}, [MUCH])]
    sending = _aside(lambda: theirs.send(told))
    assert heard(ours, 3) == told
    sending.join(10)
    ours.send([({"op": "read"}, ())])
    assert heard(theirs, 1) == [({"op": "read"}, [])]
    assert theirs.address == "127.0.0.1"


def test_who_does_not_know_the_secret_is_not_let_in(both: Both) -> None:
    with pytest.raises(connection.AuthenticationError):
        both(b"t" * 32)


def test_an_agent_that_calls_with_another_secret_is_told_so(listener: socket.socket) -> None:
    refusing = _aside(lambda: connection.answer(listener.accept()[0], b"t" * 32))
    with pytest.raises(connection.AuthenticationError):
        connection.call(*listener.getsockname(), SECRET)
    refusing.join(10)


def test_an_agent_does_not_trust_who_does_not_know_the_secret(listener: socket.socket) -> None:
    """Not even one that takes any answer for the right one."""

    def impersonate() -> None:
        with Connection(listener.accept()[0].detach()) as caller:
            caller.send_bytes(b"#CHALLENGE#" + bytes(20))
            caller.recv_bytes()
            caller.send_bytes(b"#WELCOME#")
            answer_challenge(caller, b"t" * 32)

    impersonating = _aside(impersonate)
    with pytest.raises(connection.AuthenticationError):
        connection.call(*listener.getsockname(), SECRET)
    impersonating.join(10)


def test_the_bridge_does_not_trust_who_only_takes_its_answer(listener: socket.socket) -> None:
    def impersonate() -> None:
        with Connection(socket.create_connection(listener.getsockname()).detach()) as bridge:
            answer_challenge(bridge, b"t" * 32)

    impersonating = _aside(impersonate)
    with pytest.raises(connection.AuthenticationError):
        connection.answer(listener.accept()[0], SECRET)
    impersonating.join(10)


def test_who_says_nothing_is_not_waited_for(listener: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "TIMEOUT", 1)
    with socket.create_connection(listener.getsockname()), pytest.raises(BlockingIOError):
        connection.answer(listener.accept()[0], SECRET)


def test_hanging_up_ends_the_wait_of_both(both: Both) -> None:
    ours, theirs = both()
    ended: list[str] = []

    def wait(end: FrameConnection, name: str) -> None:
        with pytest.raises((OSError, EOFError)):
            end.receive(wait=True)
        ended.append(name)

    waiting = [_aside(lambda: wait(ours, "ours")), _aside(lambda: wait(theirs, "theirs"))]
    ours.shut()
    for thread in waiting:
        thread.join(10)
    assert sorted(ended) == ["ours", "theirs"]


class Trap:
    """Leaves a folder behind when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.mark),)


def test_nothing_is_unpickled(both: Both, tmp_path: Path) -> None:
    ours, theirs = both()
    with Connection(os.dup(theirs.fileno())) as pickling:
        pickling.send(Trap(tmp_path / "mark"))
    with pytest.raises(StreamError):
        ours.receive(wait=True)
    assert not (tmp_path / "mark").exists()


def test_who_begins_with_a_pickle_is_not_let_in(listener: socket.socket, tmp_path: Path) -> None:
    with Connection(socket.create_connection(listener.getsockname()).detach()) as caller:
        caller.send(Trap(tmp_path / "mark"))
        with pytest.raises(connection.AuthenticationError):
            connection.answer(listener.accept()[0], SECRET)
    assert not (tmp_path / "mark").exists()


def test_an_agent_that_is_answered_with_a_pickle_does_not_read_it(listener: socket.socket, tmp_path: Path) -> None:
    def impersonate() -> None:
        with Connection(listener.accept()[0].detach()) as caller:
            caller.send(Trap(tmp_path / "mark"))
            caller.recv_bytes()  # until the agent hangs up

    impersonating = _aside(impersonate)
    with pytest.raises(connection.AuthenticationError):
        connection.call(*listener.getsockname(), SECRET)
    impersonating.join(10)
    assert not (tmp_path / "mark").exists()
