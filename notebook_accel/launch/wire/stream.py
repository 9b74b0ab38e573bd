"""Messages on a socket: the format between the kernel, the fork server and the ranks.

A frame is a 4-byte big-endian length, a JSON object of that length, and then its blobs back to back; the object's
`"blobs"` key holds their lengths. File descriptors travel with the first byte of a frame (`"fds"` says how many).
Several messages that have neither may share a frame: it holds a JSON array of their objects then.
"""

from __future__ import annotations

import array
import contextlib
import json
import os
import select
import socket
import struct
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from notebook_accel.errors import StreamError

if TYPE_CHECKING:
    from notebook_accel.events import Blobs

MAX_HEADER = 16 * 2**20
"""The longest JSON object that is accepted, in bytes; tracebacks and environments are far below."""
CHUNK = 256 * 1024
"""Bytes that are read at once, and the size of a socket's send buffer."""
_MAX_FDS = 32
"""The most descriptors that one read takes over."""
_LENGTH = struct.Struct(">I")
_decode = json.JSONDecoder().decode  # `json.loads` would first guess the encoding


class HasFileno(Protocol):
    """What can be waited for."""

    def fileno(self) -> int: ...


class Message(NamedTuple):
    """A message that has arrived completely."""

    header: dict[str, Any]
    blobs: list[bytearray]
    fds: list[int]


class Decoder:
    """Decodes bytes, split at any position, into headers and blobs. Buffers no more than what was fed to it."""

    def __init__(self) -> None:
        self._pending = bytearray()
        self._header: dict[str, Any] | None = None
        self._lengths: deque[int] = deque()
        self._blobs: list[bytearray] = []

    @property
    def is_torn(self) -> bool:
        """Whether part of a frame has arrived, and its end has not."""
        return bool(self._pending) or self._header is not None

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[tuple[dict[str, Any], list[bytearray]]]:
        """Yields every message that `data` completes.

        Raises:
            StreamError: The bytes cannot be a frame.
        """
        view = memoryview(data)
        while True:
            view = self._fill_blobs(view)
            if self._header is not None:
                if self._lengths:
                    return
                yield self._header, self._blobs
                self._header, self._blobs = None, []
            raw, view = self._take_raw(view)
            if raw is None:
                return
            for header in self._parse(raw):
                yield header, []

    def _fill_blobs(self, view: memoryview) -> memoryview:
        while self._lengths:
            blob = self._blobs[-1]
            part = view[: self._lengths[0] - len(blob)]
            blob += part
            view = view[len(part) :]
            if len(blob) < self._lengths[0]:
                break
            self._lengths.popleft()
            if self._lengths:
                self._blobs.append(bytearray())
        return view

    def _take_raw(self, view: memoryview) -> tuple[memoryview | None, memoryview]:
        """The JSON of the next frame, if all of it is there, and what follows it."""
        if self._pending:
            self._pending += view
            view = memoryview(self._pending)
        if len(view) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(view)
            if length > MAX_HEADER:
                raise StreamError(f"a message header of {length} bytes; at most {MAX_HEADER} are allowed")
            end = _LENGTH.size + length
            if len(view) >= end:
                self._pending = bytearray()  # the old one lives as long as the view
                return view[_LENGTH.size : end], view[end:]
        if not self._pending:
            self._pending += view
        return None, memoryview(b"")

    def _parse(self, raw: memoryview) -> list[dict[str, Any]]:
        """The messages of a frame; one that has blobs becomes the header that waits for them."""
        try:
            found = _decode(str(raw, "utf-8"))
        except (ValueError, RecursionError) as error:
            raise StreamError(f"a message header that is not JSON: {bytes(raw[:80])!r}") from error
        messages = found if isinstance(found, list) and found else [found]
        if not all(isinstance(message, dict) for message in messages):
            raise StreamError(f"a message header that is not an object: {bytes(raw[:80])!r}")
        if found is messages or "blobs" not in found:
            return messages
        lengths = found.pop("blobs")
        if not isinstance(lengths, list) or not all(type(length) is int and length >= 0 for length in lengths):
            raise StreamError(f"blob lengths that are not lengths: {str(lengths)[:80]}")
        self._header, self._lengths = found, deque(lengths)
        self._blobs = [bytearray()] if lengths else []
        return []


def encode(header: Mapping[str, Any], blobs: Blobs = ()) -> bytes:
    """The bytes of a frame up to its blobs."""
    return frame([text(header, blobs)])


def text(header: Mapping[str, Any], blobs: Blobs = ()) -> bytes:
    """The JSON of one message."""
    lengths = [memoryview(blob).nbytes for blob in blobs]
    return json.dumps({**header, "blobs": lengths} if lengths else header).encode()


def frame(texts: Sequence[bytes]) -> bytes:
    """The bytes of a frame up to its blobs: of one message, or of several that have none, each given by its JSON.

    Raises:
        StreamError: It is too long.
    """
    raw = texts[0] if len(texts) == 1 else b"[%b]" % b",".join(texts)
    if len(raw) > MAX_HEADER:
        raise StreamError(f"a message header of {len(raw)} bytes; at most {MAX_HEADER} are allowed")
    return _LENGTH.pack(len(raw)) + raw


class Channel:
    """A socket that carries frames both ways. Threads may send at once; one thread receives."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._decoder = Decoder()
        self._sending = threading.Lock()
        self._fds: deque[int] = deque()
        self._open = True

    def fileno(self) -> int:
        return self._sock.fileno()

    def send(self, header: Mapping[str, Any], blobs: Blobs = (), fds: Sequence[int] = ()) -> None:
        """Sends one frame whole; blocks while the other side does not read.

        Raises:
            OSError: The other side is gone.
        """
        raw = encode({**header, "fds": len(fds)} if fds else header, blobs)
        if blobs and sum(memoryview(blob).nbytes for blob in blobs) < CHUNK:
            raw, blobs = b"".join((raw, *blobs)), ()  # one write, so that the receiver is woken once
        with self._sending:
            if fds:
                sent = socket.send_fds(self._sock, [raw], list(fds))
                raw = raw[sent:]
            if raw:  # to send nothing fails too where the other side has taken it all, and is gone
                self._sock.sendall(raw)
            for blob in blobs:
                self._sock.sendall(memoryview(blob).cast("B"))

    def send_together(self, headers: Sequence[Mapping[str, Any]]) -> None:
        """Sends several messages, without blobs and descriptors, in one frame.

        Raises:
            OSError: The other side is gone.
        """
        if headers:
            raw = frame([json.dumps(headers).encode()])
            with self._sending:
                self._sock.sendall(raw)

    def receive(self, *, wait: bool) -> list[Message] | None:
        """Returns the messages that have arrived completely; `None` once the other side has closed.

        Args:
            wait: Whether to block until there is something to read, if only a part of a message.

        Raises:
            StreamError: The bytes are not a frame, or its descriptors are missing.
        """
        try:
            data, fds = _receive(self._sock, 0 if wait else socket.MSG_DONTWAIT)
        except BlockingIOError:
            return []
        except ConnectionError:
            data, fds = b"", []
        for fd in fds:
            os.set_inheritable(fd, False)
        self._fds.extend(fds)
        if not data:
            self._open = False
            return None
        messages: list[Message] = []
        try:
            for header, blobs in self._decoder.feed(data):
                messages.append(self._message(header, blobs))
        except StreamError:
            for message in messages:
                self._fds.extend(message.fds)  # the messages are dropped; their descriptors are closed with the channel
            raise
        return messages

    @property
    def is_torn(self) -> bool:
        """Whether part of a frame has arrived, and its end has not."""
        return self._decoder.is_torn

    @property
    def is_open(self) -> bool:
        """Whether the other side may still send."""
        return self._open

    def has_data(self) -> bool:
        """Whether there is something to read, be it the end, without waiting."""
        return is_readable(self, 0)

    def messages(self) -> Iterator[Message]:
        """Every message until the other side closes."""
        while (batch := self.receive(wait=True)) is not None:
            yield from batch

    def finish(self) -> None:
        """Shuts down sending, so that the other side reads the end; it can still send."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Closes the socket, and any descriptor that arrived and was not taken."""
        self._sock.close()
        while self._fds:
            os.close(self._fds.popleft())

    def _message(self, header: dict[str, Any], blobs: list[bytearray]) -> Message:
        count = header.pop("fds", 0)
        if type(count) is not int or not 0 <= count <= len(self._fds):
            raise StreamError(f"a message with {count!r} descriptors; {len(self._fds)} arrived")
        return Message(header, blobs, [self._fds.popleft() for _ in range(count)])


def _receive(sock: socket.socket, flags: int) -> tuple[bytes, list[int]]:
    """Like `socket.recv_fds`, which accepts flags and ignores them."""
    fds = array.array("i")
    data, ancillary, _, _ = sock.recvmsg(CHUNK, socket.CMSG_SPACE(_MAX_FDS * fds.itemsize), flags)
    for level, kind, payload in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(payload[: len(payload) - len(payload) % fds.itemsize])
    return data, list(fds)


def is_readable(source: HasFileno, seconds: float) -> bool:
    """Waits until there is something to read, be it the end, for at most so long; returns whether there is."""
    poll = select.poll()  # `select.select` fails in a kernel with more than 1,024 open files
    poll.register(source, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def pair() -> tuple[socket.socket, socket.socket]:
    """Two connected sockets, private to the processes that hold their descriptors, with room for bursts."""
    ends = socket.socketpair()
    for end in ends:
        with contextlib.suppress(OSError):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, CHUNK)
    return ends


def close_all(fds: Iterable[int]) -> None:
    """Closes every descriptor, such as those of a message."""
    for fd in fds:
        os.close(fd)
