"""The fork server's connection to the process that hosts the stores, where that process is killed."""

from __future__ import annotations

import datetime
import os
import signal
import socket
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from torch.distributed import TCPStore

from notebook_accel.launch.server.store_link import StoreLink
from notebook_accel.launch.wire.event_loop import EventLoop
from notebook_accel.launch.wire.stream import Message

HOST = "127.0.0.1"
GROUP = 7
PATIENCE = 60.0
"""Seconds within which a process has imported torch and hosts a store."""


class Link:
    """What the fork server does with it: it waits for the messages of the process."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._loop = EventLoop()
        self.link = StoreLink("spawn", self._loop, self.messages.extend)

    def open(self) -> int:
        """Requests a store; returns its port."""
        with socket.create_server((HOST, 0)) as listener:
            port: int = listener.getsockname()[1]
            request = {
                "op": "open",
                "group": GROUP,
                "host": HOST,
                "port": port,
                "num_nodes": 1,
                "join_timeout": PATIENCE,
            }
            self.link.open(request, [listener.fileno()])
        return port

    def take_messages(self, seconds: float) -> bool:
        """Does what there is to do; returns whether there was anything."""
        return self._loop.run_once(seconds)

    def kill(self) -> None:
        """Kills the process, and lets the link notice."""
        assert self.link.pid is not None
        os.kill(self.link.pid, signal.SIGKILL)
        os.waitpid(self.link.pid, 0)
        assert self.take_messages(PATIENCE)

    def close(self) -> None:
        if self.link.is_up:
            self.link.close(GROUP)
            self.kill()
        self.link.release()


@pytest.fixture
def stopped() -> Iterator[Link]:
    """Its process is stopped before it has read anything."""
    made = Link()
    made.link.start()
    assert made.link.pid is not None
    os.kill(made.link.pid, signal.SIGSTOP)
    yield made
    made.close()


def connect(port: int) -> Any:
    return TCPStore(HOST, port, is_master=False, timeout=datetime.timedelta(seconds=PATIENCE))


def test_a_request_that_a_killed_process_has_not_answered_goes_to_the_next(stopped: Link) -> None:
    """A process that is being killed still takes requests."""
    port = stopped.open()
    stopped.kill()
    assert stopped.link.is_up
    with ThreadPoolExecutor(1) as pool:
        connected = pool.submit(connect, port)
        assert stopped.take_messages(PATIENCE)  # the answer
        connected.result(PATIENCE).set("key", "value")
    assert not stopped.messages


def test_a_request_that_kills_two_processes_is_an_error(stopped: Link) -> None:
    stopped.open()
    stopped.kill()
    stopped.kill()
    (message,) = stopped.messages
    assert message.header["group"] == GROUP
    assert "it has been killed twice" in message.header["error"]


def test_a_store_that_cannot_be_opened_says_why(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('libcudart.so.12: cannot open shared object file')")
    monkeypatch.setattr("sys.path", [str(tmp_path), *sys.path])
    broken = Link()
    request.addfinalizer(broken.close)
    broken.link.start()
    broken.open()
    assert broken.take_messages(PATIENCE)
    (message,) = broken.messages
    assert message.header["group"] == GROUP
    assert "can't be opened: ImportError: libcudart.so.12: cannot open shared" in message.header["error"]
    assert broken.link.is_up


def test_a_request_that_nobody_needs_any_more_is_not_repeated(stopped: Link) -> None:
    stopped.open()
    stopped.link.close(GROUP)
    stopped.kill()
    assert not stopped.link.is_up
