"""Who can use the store of a launch: processes of the same user, and no other."""

from __future__ import annotations

import contextlib
import datetime
import errno
import gc
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psutil
import pytest
from torch.distributed import TCPStore

from notebook_accel.launch.server import store, store_guard
from notebook_accel.launch.system.network import OwnerQuery, knows_owners

HOST = "127.0.0.1"
PATIENCE = datetime.timedelta(seconds=30)
pytestmark = pytest.mark.skipif(not knows_owners(), reason="this system does not report who owns a socket")
needs_guard = pytest.mark.skipif(not store_guard.is_available(), reason="this system lets only root filter packets")
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can start a process of another user")

WRITE = """
import os, socket, sys
user, port, times = map(int, sys.argv[1:4])
os.setgid(user)
os.setuid(user)
for _ in range(times):
    with socket.socket() as connection:
        connection.settimeout(20)
        connection.connect(("127.0.0.1", port))
        try:
            connection.sendall(bytes.fromhex(sys.argv[4]))
            if times == 1:
                print("received", connection.recv(4))
        except ConnectionError:
            print("received", b"")
"""
"""Connects as a user, and either waits for an answer, or closes the connection at once, several times."""


class Hosted:
    """A store, as the store process has it for one group."""

    def __init__(self) -> None:
        with socket.create_server((HOST, 0)) as listener:
            self.port: int = listener.getsockname()[1]
            request = {"host": HOST, "port": self.port, "join_timeout": 30.0}
            self.store = store.host(request, listener.detach())

    def client(self) -> Any:
        return TCPStore(HOST, self.port, is_master=False, timeout=PATIENCE)


@pytest.fixture
def hosted() -> Iterator[Hosted]:
    made = Hosted()
    yield made
    del made.store


def message(key: bytes) -> bytes:
    """What a client of torch's store sends to set a key, and to have a number returned."""
    validate = b"\0" + struct.pack("=I", 0x3C85F7CE)
    stored = b"/" + key
    write = b"\1" + struct.pack("=Q", len(stored)) + stored + struct.pack("=Q", 1) + b"x"
    return validate + write + b"\x0d" + struct.pack("=I", 7)


def write_as(user: int, port: int, key: bytes, times: int = 1) -> str:
    arguments = [sys.executable, "-c", WRITE, str(user), str(port), str(times), message(key).hex()]
    return subprocess.run(arguments, capture_output=True, text=True, check=True, timeout=60).stdout


def test_clients_of_this_user_read_and_write(hosted: Hosted) -> None:
    clients = [hosted.client() for _ in range(3)]
    clients[0].set("a", "value")
    assert [client.get("a") for client in clients] == [b"value"] * 3
    assert hosted.store.get("a") == b"value"
    assert sorted(client.add("count", 1) for client in clients) == [1, 2, 3]


def test_large_values_pass_to_many_clients_at_once(hosted: Hosted) -> None:
    value = os.urandom(4_000_000)
    with ThreadPoolExecutor(8) as pool:
        clients = list(pool.map(lambda _: hosted.client(), range(8)))
        list(pool.map(lambda client: client.set(f"from {id(client)}", value), clients))
        assert all(pool.map(lambda client: client.get(f"from {id(clients[0])}") == value, clients))


def test_no_request_waits_for_an_acknowledgment(hosted: Hosted) -> None:
    """The system may hold an acknowledgment back for 40 ms, and without TCP_NODELAY, half of a request until then."""
    client, other = hosted.client(), hosted.client()

    def seconds() -> float:
        began = time.monotonic()
        for _ in range(10):
            client.add("count", 1)
            client.set("key", "value")
            other.get("key")
            client.set("second", "value")
            client.get("second")
        return time.monotonic() - began

    assert min(seconds() for _ in range(5)) < 0.2


@needs_root
def test_processes_of_other_users_are_turned_away(hosted: Hosted) -> None:
    assert write_as(os.getuid(), hosted.port, b"own") == f"received {struct.pack('=I', 7)}\n"
    assert write_as(65534, hosted.port, b"foreign") == "received b''\n"
    assert hosted.store.check(["own"])
    assert not hosted.store.check(["foreign"])


@needs_root
def test_other_users_cannot_write_and_close_the_connection_at_once(hosted: Hosted) -> None:
    """The system no longer knows whose a closed socket was."""
    write_as(65534, hosted.port, b"foreign", times=50)
    hosted.client().set("after", "all of them")
    assert not hosted.store.check(["foreign"])


def test_an_owner_who_has_closed_the_connection_is_not_taken_for_root() -> None:
    query = OwnerQuery()
    with socket.create_server((HOST, 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        with contextlib.closing(query), listener.accept()[0] as accepted:
            assert query.is_own(accepted)
            client.sendall(b"last words")
            client.close()
            assert not query.is_own(accepted)


def test_a_system_that_refuses_socket_filters_has_stores_without_a_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(store_guard, "attach_filter", refuse)
    store_guard.is_available.cache_clear()
    try:
        store.end_guard()
        hosted = Hosted()
        hosted.client().set("key", "value")
        assert hosted.store.get("key") == b"value"
    finally:
        store_guard.is_available.cache_clear()


@needs_guard
def test_the_store_itself_cannot_be_reached(hosted: Hosted) -> None:
    listening = {each.laddr for each in psutil.Process().net_connections("tcp") if each.status == psutil.CONN_LISTEN}
    (behind,) = [address for address in listening if address.port == hosted.port and address.ip != HOST]
    with pytest.raises(TimeoutError):
        socket.create_connection((behind.ip, behind.port), timeout=0.5)
    with socket.socket() as own_port:
        own_port.settimeout(0.5)
        own_port.bind((HOST, 0))
        with pytest.raises(TimeoutError):
            own_port.connect((behind.ip, behind.port))


def test_a_store_that_is_closed_disconnects_its_clients_and_frees_the_port() -> None:
    hosted = Hosted()
    client = hosted.client()
    client.set("a", "1")
    del hosted.store
    with pytest.raises(Exception, match=r"(?i)connection|broken pipe|failed"):
        client.get("a")
    socket.create_server((HOST, hosted.port)).close()


def relays() -> set[int]:
    """The processes that this one has started, of which ended ones may not have been reaped."""
    return {each.pid for each in psutil.Process().children()}


@needs_guard
def test_a_guard_that_was_killed_is_replaced_and_leaves_nothing() -> None:
    store.end_guard()
    before = relays()
    store.start_guard()
    (first,) = relays() - before
    psutil.Process(first).kill()
    hosted = Hosted()
    gc.collect()  # a socket that was left open is an error
    (second,) = relays() - before
    assert second != first
    hosted.client().set("a", "1")
    del hosted.store
    socket.create_server((HOST, hosted.port)).close()
    store.end_guard()
    assert not relays() - before
