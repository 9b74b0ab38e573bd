"""An authenticated connection for frames between the bridge and an agent.

Before anything else is read, each side proves that it knows the secret of this start. Nothing is ever unpickled. Frames
are not encrypted, and neither is the traffic between ranks, so the network must be private.

Source: the challenge and answer are those of `multiprocessing.connection`.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from typing import Any

from notebook_accel.launch.cluster.protocol import LEASE, Frame
from notebook_accel.launch.wire import stream
from notebook_accel.launch.wire.stream import CHUNK, Channel

TIMEOUT = 10
"""How many seconds each side has to answer during authentication."""


class FrameConnection:
    """One end of a connection. One thread may send while another receives."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._channel = Channel(link)
        self._sending = threading.Lock()
        self.address = str(link.getsockname()[0])
        """The address at which the other end has reached this one."""

    def fileno(self) -> int:
        return self._link.fileno()

    def send(self, frames: Sequence[Frame]) -> None:
        """Sends frames; blocks while the other end does not read.

        Raises:
            OSError: The other end is gone.
        """
        with self._sending:
            for part in _chunks(frames):
                self._link.sendall(part)

    def receive(self, *, wait: bool = False) -> list[Frame]:
        """The frames that are there (`wait`: blocks until something arrives, which may be part of a frame).

        Raises:
            EOFError: The other end has closed the connection.
            OSError: The connection broke.
            StreamError: The other end does not follow the protocol.
        """
        messages = self._channel.receive(wait=wait)
        if messages is None:
            raise EOFError
        return [(message.header, message.blobs) for message in messages]

    def receive_header(self) -> dict[str, Any]:
        """Waits for a frame that the other end sends alone, and returns its JSON object.

        Raises:
            EOFError: As in `receive`, as are the following errors.
            OSError: The connection broke.
            StreamError: The other end does not follow the protocol.
        """
        while not (frames := self.receive(wait=True)):
            pass
        return frames[0][0]

    def shut(self) -> None:
        """Ends a waiting `send` or `receive` at both ends. Any thread may call it."""
        with contextlib.suppress(OSError):
            self._link.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Frees the socket."""
        self.shut()
        self._channel.close()


def _chunks(frames: Sequence[Frame]) -> Iterator[Any]:
    """The bytes of frames. Small parts are joined, so that the other end is woken once."""
    small: list[Any] = []
    size = 0
    for header, blobs in frames:
        for part in (stream.encode(header, blobs), *blobs):
            length = memoryview(part).nbytes
            if size + length > CHUNK:
                yield b"".join(small)
                small, size = [], 0
            if length > CHUNK:
                yield part
            else:
                small.append(part)
                size += length
    yield b"".join(small)


def answer(caller: socket.socket, secret: bytes) -> FrameConnection:
    """Accepts a connection from a caller that knows the secret.

    Raises:
        AuthenticationError: The caller does not know the secret.
        OSError: The caller has disconnected or does not answer; also raised as EOFError.
    """
    return _authenticated(caller, secret, deliver_challenge, answer_challenge)


def call(host: str, port: int, secret: bytes) -> FrameConnection:
    """Calls the bridge.

    Raises:
        AuthenticationError: The other end does not know the secret.
        OSError: The bridge can't be reached; also raised as EOFError.
    """
    return _authenticated(socket.create_connection((host, port), TIMEOUT), secret, answer_challenge, deliver_challenge)


def _authenticated(
    link: socket.socket, secret: bytes, *proofs: Callable[[Connection, bytes], object]
) -> FrameConnection:
    """Lets each end prove in turn that it knows the secret."""
    with link:
        link.settimeout(None)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _set_receive_timeout(link, TIMEOUT)
        with Connection(os.dup(link.fileno())) as connection:
            try:
                for prove in proofs:
                    prove(connection, secret)
            except (
                AssertionError
            ) as error:  # of `answer_challenge` before Python 3.12, for a message that isn't a challenge
                raise AuthenticationError("the answer is not a challenge") from error
        _set_receive_timeout(link, 0)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # a lost network shows only while data is being sent
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(1000 * LEASE))
        return FrameConnection(socket.socket(fileno=link.detach()))


def _set_receive_timeout(link: socket.socket, seconds: int) -> None:
    """Sets the timeout of reads; 0 for none. `settimeout` has no effect on `Connection`, which calls `read` itself."""
    link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", seconds, 0))


__all__ = ["AuthenticationError", "FrameConnection", "answer", "call"]
