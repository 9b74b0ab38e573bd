"""The connection that agents call on: only who knows the secret is let in, and only frames come out."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, answer_challenge
from pathlib import Path
from typing import Any

import pytest

from notebook_accel.launch.cluster import connection
from notebook_accel.launch.cluster.connection import FrameConnection

SECRET = b"s" * 32


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as found:
        yield found


def both(listener: socket.socket, secret: bytes = SECRET) -> tuple[FrameConnection, FrameConnection]:
    """The ends of a connection: that of the bridge, and that of an agent which thinks that this is the secret."""
    called: list[Any] = []
    caller = _aside(lambda: called.append(connection.call(*listener.getsockname(), secret)))
    try:
        return connection.answer(listener.accept()[0], SECRET), *_after(caller, called)
    finally:
        caller.join(10)


def _after(thread: threading.Thread, found: list[Any]) -> list[Any]:
    thread.join(10)
    return found


def _aside(act: Callable[[], object]) -> threading.Thread:
    def quietly() -> None:
        with contextlib.suppress(OSError, EOFError, connection.AuthenticationError):
            act()

    thread = threading.Thread(target=quietly, daemon=True)
    thread.start()
    return thread


def test_frames_travel_both_ways(listener: socket.socket) -> None:
    ours, theirs = both(listener)
    theirs.send([({"op": "said", "rank": 0}, [b"a" * 100_000, b""]), ({"op": "silent"}, ())])
    assert ours.receive() == [({"op": "said", "rank": 0}, [b"a" * 100_000, b""]), ({"op": "silent"}, [])]
    ours.send([])
    assert theirs.receive() == []
    assert theirs.address == "127.0.0.1"


def test_who_does_not_know_the_secret_is_not_let_in(listener: socket.socket) -> None:
    with pytest.raises(connection.AuthenticationError):
        both(listener, b"t" * 32)


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


def test_hanging_up_ends_the_wait_of_both(listener: socket.socket) -> None:
    ours, theirs = both(listener)
    ended: list[str] = []

    def wait(end: FrameConnection, name: str) -> None:
        with pytest.raises((OSError, EOFError)):
            end.receive()
        ended.append(name)

    waiting = [_aside(lambda: wait(ours, "ours")), _aside(lambda: wait(theirs, "theirs"))]
    ours.close()
    for thread in waiting:
        thread.join(10)
    assert sorted(ended) == ["ours", "theirs"]


class Trap:
    """Leaves a folder behind when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.mark),)


def test_nothing_is_unpickled(listener: socket.socket, tmp_path: Path) -> None:
    ours, theirs = both(listener)
    with Connection(os.dup(theirs.fileno())) as pickling:
        pickling.send(Trap(tmp_path / "mark"))
    with pytest.raises((UnicodeDecodeError, json.JSONDecodeError)):
        ours.receive()
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
