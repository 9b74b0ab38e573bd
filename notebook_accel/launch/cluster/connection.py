"""An authenticated connection for frames between the bridge and an agent.

Before anything else is read, each side proves that it knows the secret of this start. Nothing is ever unpickled. Frames
are not encrypted, and neither is the traffic between ranks, so the network must be private.

Source: the challenge and answer are those of `multiprocessing.connection`.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge

from notebook_accel.launch.cluster.protocol import LEASE, Frame

TIMEOUT = 10
"""How many seconds each side has to answer during authentication."""
_MOST = 16 * 2**20
"""The most bytes of a message's JSON part; large data is in blobs."""


class FrameConnection:
    """One end of a connection. One thread may send while another receives."""

    def __init__(self, connection: Connection, address: str) -> None:
        self._connection = connection
        self._sending = threading.Lock()
        self.address = address
        """The address at which the other end has reached this one."""

    def fileno(self) -> int:
        return self._connection.fileno()

    def send(self, frames: Sequence[Frame]) -> None:
        """Sends frames together; the list may be empty.

        Raises:
            OSError: The other end is gone.
        """
        heads = [(header, [memoryview(blob).nbytes for blob in blobs]) for header, blobs in frames]
        every = [blob for _, blobs in frames for blob in blobs]
        with self._sending:
            self._connection.send_bytes(json.dumps(heads).encode())
            if every:
                self._connection.send_bytes(every[0] if len(every) == 1 else b"".join(every))

    def receive(self) -> list[Frame]:
        """Waits for frames that were sent together.

        Raises:
            OSError: The other end is gone; also raised as EOFError.
            ValueError: The other end does not follow the protocol.
        """
        heads = json.loads(self._connection.recv_bytes(_MOST))
        every = self._connection.recv_bytes() if any(lengths for _, lengths in heads) else b""
        frames: list[Frame] = []
        at = 0
        for header, lengths in heads:
            blobs = []
            for length in lengths:
                blobs.append(every[at : at + length])
                at += length
            frames.append((header, blobs))
        return frames

    def close(self) -> None:
        """Shuts the connection down, which ends a waiting `receive`."""
        with contextlib.suppress(OSError), _as_socket(self._connection) as link:
            link.shutdown(socket.SHUT_RDWR)


def answer(caller: socket.socket, secret: bytes) -> FrameConnection:
    """Accepts a connection from a caller that knows the secret.

    Raises:
        AuthenticationError: The caller does not know the secret.
        OSError: The caller has disconnected or does not answer; also raised as EOFError.
    """
    connection, address = _connection(caller)
    try:
        deliver_challenge(connection, secret)
        answer_challenge(connection, secret)
    except BaseException:
        connection.close()
        raise
    return _authenticated(connection, address)


def call(host: str, port: int, secret: bytes) -> FrameConnection:
    """Calls the bridge.

    Raises:
        AuthenticationError: The other end does not know the secret.
        OSError: The bridge can't be reached; also raised as EOFError.
    """
    connection, address = _connection(socket.create_connection((host, port), TIMEOUT))
    try:
        answer_challenge(connection, secret)
        deliver_challenge(connection, secret)
    except AssertionError as error:  # of `answer_challenge` before Python 3.12, for what is no challenge
        connection.close()
        raise AuthenticationError("the answer is no challenge") from error
    except BaseException:
        connection.close()
        raise
    return _authenticated(connection, address)


def _connection(link: socket.socket) -> tuple[Connection, str]:
    link.settimeout(None)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    _set_receive_timeout(link, TIMEOUT)
    address = str(link.getsockname()[0])
    return Connection(link.detach()), address


def _authenticated(connection: Connection, address: str) -> FrameConnection:
    with _as_socket(connection) as link:
        _set_receive_timeout(link, 0)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # a lost network shows only while data is being sent
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(1000 * LEASE))
    return FrameConnection(connection, address)


@contextlib.contextmanager
def _as_socket(connection: Connection) -> Iterator[socket.socket]:
    """Yields a socket for the connection; the connection stays open afterwards."""
    link = socket.socket(fileno=connection.fileno())
    try:
        yield link
    finally:
        link.detach()


def _set_receive_timeout(link: socket.socket, seconds: int) -> None:
    """Sets the timeout of reads; 0 for none. `settimeout` has no effect on `Connection`, which calls `read` itself."""
    link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", seconds, 0))


__all__ = ["AuthenticationError", "FrameConnection", "answer", "call"]
