import contextlib
import fcntl
import json
import os
import random
import socket
import struct
import threading
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from notebook_accel.errors import StreamError
from notebook_accel.launch.wire.stream import CHUNK, MAX_HEADER, Channel, Decoder, encode, pair

HUGE = 2**62

values = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=10)
keys = st.text(max_size=5).filter(lambda key: key not in ("blobs", "fds"))
frames = st.tuples(st.dictionaries(keys, values, max_size=4), st.lists(st.binary(max_size=40), max_size=4))


def raw(frame: tuple[dict[str, Any], Sequence[bytes]]) -> bytes:
    header, blobs = frame
    return encode(header, blobs) + b"".join(blobs)


def lengthy(header: bytes) -> bytes:
    return struct.pack(">I", len(header)) + header


def decoded(pieces: Sequence[bytes]) -> list[tuple[dict[str, Any], list[bytearray]]]:
    decoder = Decoder()
    return [frame for piece in pieces for frame in decoder.feed(piece)]


@st.composite
def torn(draw: st.DrawFn) -> tuple[list[tuple[dict[str, Any], list[bytes]]], list[bytes]]:
    sent = draw(st.lists(frames, max_size=4))
    stream = b"".join(map(raw, sent))
    cuts = sorted(draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    return sent, [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]


@given(torn())
def test_a_stream_torn_in_any_way_gives_the_same_frames(case: tuple[list[Any], list[bytes]]) -> None:
    sent, pieces = case
    assert decoded(pieces) == sent


@given(st.lists(frames, max_size=3))
def test_a_stream_may_come_byte_by_byte(sent: list[Any]) -> None:
    stream = b"".join(map(raw, sent))
    assert decoded([stream[at : at + 1] for at in range(len(stream))]) == sent


@given(st.lists(frames, max_size=2), frames, st.data())
def test_a_torn_frame_waits_for_its_end(whole: list[Any], last: Any, data: st.DataObject) -> None:
    end = raw(last)
    cut = data.draw(st.integers(1, len(end) - 1))
    decoder = Decoder()
    assert list(decoder.feed(b"".join(map(raw, whole)) + end[:cut])) == whole
    assert decoder.is_torn
    assert list(decoder.feed(b"")) == []
    assert list(decoder.feed(end[cut:])) == [last]
    assert not decoder.is_torn


def test_a_large_blob_arrives_as_it_was_and_can_be_written_to() -> None:
    blob = os.urandom(3 * CHUNK + 7)
    stream = raw(({"kind": "returned"}, [blob, b"", b"tail"]))
    ((header, blobs),) = decoded([stream[at : at + CHUNK] for at in range(0, len(stream), CHUNK)])
    assert header == {"kind": "returned"}
    assert blobs == [blob, b"", b"tail"]
    blobs[0][0] ^= 1


@pytest.mark.parametrize(
    "sent",
    [
        struct.pack(">I", MAX_HEADER + 1),
        b"\xff\xff\xff\xff",
        b"GET / HTTP/1.1\r\n",
        lengthy(b""),
        lengthy(b"{"),
        lengthy(b"{'a': 1}"),
        lengthy(b"[]"),
        lengthy(b'[{"a": 1}, 2]'),
        lengthy(b'"blobs"'),
        lengthy(b"null"),
        lengthy(b"\xff\xfe{}"),
        lengthy(b"1" * 5000),
        lengthy(b"[" * 100_000),
        lengthy(b'{"a":' * 100_000),
        *[
            lengthy(json.dumps({"blobs": bad}).encode())
            for bad in (None, 3, "3", {}, [-1], [1.0], ["1"], [True], [[1]])
        ],
    ],
    ids=lambda sent: repr(sent[:24]),
)
def test_what_is_no_frame_is_refused(sent: bytes) -> None:
    with pytest.raises(StreamError) as refused:
        decoded([sent])
    assert len(str(refused.value)) < 300


def read(stream: bytes) -> tuple[list[Any], bool]:
    """The messages of a stream, as the head of the module describes it, up to what can be none; whether that came."""
    found: list[Any] = []
    while len(stream) >= 4:
        length = int.from_bytes(stream[:4], "big")
        raw, rest = stream[4 : 4 + length], stream[4 + length :]
        if length > MAX_HEADER:
            return found, True
        if len(raw) < length:
            break
        try:
            parsed = json.loads(raw.decode())
        except (ValueError, RecursionError):
            return found, True
        lengths = parsed.pop("blobs", []) if isinstance(parsed, dict) else []
        messages = parsed if isinstance(parsed, list) and parsed else [parsed]
        if not all(isinstance(message, dict) for message in messages):
            return found, True
        if not isinstance(lengths, list) or any(type(each) is not int or each < 0 for each in lengths):
            return found, True
        blobs, stream = [], rest
        for each in lengths:
            blobs.append(stream[:each])
            stream = stream[each:]
        if sum(map(len, blobs)) < sum(lengths):
            break
        found += [(message, blobs) for message in messages]
    return found, False


def outcome(pieces: Sequence[bytes]) -> tuple[list[Any], bool]:
    """The same by a decoder."""
    decoder, found = Decoder(), []
    try:
        for piece in pieces:
            for message in decoder.feed(piece):
                found.append(message)
    except StreamError:
        return found, True
    return found, False


@given(st.lists(st.binary(max_size=30), max_size=4))
def test_random_bytes_are_refused_or_wait(pieces: list[bytes]) -> None:
    assert outcome(pieces) == read(b"".join(pieces))


headers = st.dictionaries(st.sampled_from(["blobs", "fds", "a"]), values | st.lists(values, max_size=3), max_size=3)


def whole(blobs: list[bytes]) -> bytes:
    """A message with all of its blobs."""
    return lengthy(json.dumps({"blobs": list(map(len, blobs))}).encode()) + b"".join(blobs)


parts = st.one_of(
    st.lists(st.binary(max_size=20), max_size=3).map(whole),
    headers.map(lambda header: lengthy(json.dumps(header).encode())),
    st.lists(headers, max_size=2).map(lambda several: lengthy(json.dumps(several).encode())),
    st.integers(-3, 20).map(lambda length: lengthy(json.dumps({"blobs": [length, 1]}).encode())),
    st.binary(max_size=20).map(lengthy),
    st.binary(max_size=20),
)


@given(st.lists(parts, max_size=4), st.integers(0, 100))
@example([whole([b"of", b"two"]), whole([])], 0)
def test_any_object_is_refused_or_taken_or_waits(made: list[bytes], cut: int) -> None:
    stream = b"".join(made)
    assert outcome([stream[:cut], stream[cut:]]) == read(stream)


@contextlib.contextmanager
def allocating_less_than(limit: int) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < limit
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "sent",
    [
        struct.pack(">I", MAX_HEADER) + b"{",
        lengthy(b'{"blobs": [%d]}' % HUGE) + b"x",
        lengthy(b'{"blobs": [%s]}' % (b"9" * 4000)) + b"x",
        lengthy(b'{"blobs": [%s0]}' % (b"0, " * 100_000)),
    ],
    ids=["a header", "a blob", "an even larger one", "many blobs"],
)
def test_what_is_announced_takes_no_memory_before_it_comes(sent: bytes) -> None:
    decoder = Decoder()
    with allocating_less_than(2**20 + 30 * len(sent)):
        list(decoder.feed(sent))


def test_a_header_that_is_too_long_is_not_sent() -> None:
    with pytest.raises(StreamError, match="at most"):
        encode({"text": "x" * MAX_HEADER})


# Channels


@pytest.fixture
def ends() -> Iterator[tuple[Channel, Channel]]:
    """Two ends of a channel; once they are closed, no descriptor may be left."""
    before = descriptors()
    left, right = map(Channel, pair())
    yield left, right
    left.close()
    right.close()
    # What earlier tests had open may be closed meanwhile, by a thread that awaits a server's end.
    assert descriptors() - before == set()


def descriptors() -> set[str]:
    return set(os.listdir("/dev/fd"))


def take(channel: Channel, count: int) -> list[Any]:
    """Reads until so many messages are there."""
    found: list[Any] = []
    while len(found) < count:
        batch = channel.receive(wait=True)
        assert batch is not None, f"the other side has closed after {len(found)} messages"
        found += batch
    assert len(found) == count
    return found


@contextlib.contextmanager
def running(*targets: Callable[[], object]) -> Iterator[None]:
    threads = [threading.Thread(target=target) for target in targets]
    for thread in threads:
        thread.start()
    yield
    for thread in threads:
        thread.join()


def test_a_message_arrives(ends: tuple[Channel, Channel]) -> None:
    left, right = ends
    left.send({"kind": "x"}, [b"one", bytearray(b"two"), memoryview(b"three")])
    (message,) = take(right, 1)
    assert message == ({"kind": "x"}, [b"one", b"two", b"three"], [])


def test_messages_that_travel_together_arrive_one_by_one(ends: tuple[Channel, Channel]) -> None:
    left, right = ends
    together = [{"kind": "bar", "n": number} for number in range(3)]
    left.send({"kind": "hello"})
    left.send_together(together)
    left.send_together([])
    left.send({"kind": "returned"}, blobs=[b"value"])
    left.close()
    found = list(right.messages())
    assert [message.header for message in found] == [{"kind": "hello"}, *together, {"kind": "returned"}]
    assert [message.blobs for message in found] == [[], [], [], [], [b"value"]]


def test_a_blob_of_numbers_arrives_as_its_bytes(ends: tuple[Channel, Channel]) -> None:
    left, right = ends
    left.send({}, [memoryview(struct.pack("3d", 1, 2, 3)).cast("d")])
    assert take(right, 1)[0].blobs == [struct.pack("3d", 1, 2, 3)]


@pytest.mark.timeout(60)
def test_nothing_to_read_is_no_end(ends: tuple[Channel, Channel]) -> None:
    left, right = ends
    assert not right.has_data()
    assert right.receive(wait=False) == []
    assert right.is_open
    left.send({})
    assert right.has_data()


def test_the_end_comes_after_what_was_said(ends: tuple[Channel, Channel]) -> None:
    left, right = ends
    left.send({"n": 1})
    left.finish()
    assert [message.header for message in right.messages()] == [{"n": 1}]
    assert not right.is_open
    right.send({"n": 2})  # the other direction is still open
    assert take(left, 1)[0].header == {"n": 2}


def test_a_closed_channel_can_be_finished(ends: tuple[Channel, Channel]) -> None:
    left, right = ends
    left.send({"n": 1})
    left.close()
    left.finish()
    assert [message.header for message in right.messages()] == [{"n": 1}]


def test_a_peer_that_has_gone_is_told_when_sending(ends: tuple[Channel, Channel]) -> None:
    left, right = ends
    right.close()
    with pytest.raises(BrokenPipeError):
        left.send({})


def test_a_peer_that_leaves_words_unread_is_an_end(ends: tuple[Channel, Channel]) -> None:
    left, right = ends
    left.send({})
    right.close()  # a connection reset, as the system sees it
    assert left.receive(wait=True) is None


def test_descriptors_travel_with_their_message(ends: tuple[Channel, Channel]) -> None:
    left, right = ends
    pipes = [os.pipe() for _ in range(5)]
    for count in (1, 0, 3, 0, 1):
        owners = [pipes.pop() for _ in range(count)]
        left.send({"pipes": [os.fstat(read).st_ino for read, _ in owners]}, [b"blob"], [read for read, _ in owners])
        for pipe in owners:
            for fd in pipe:
                os.close(fd)
    for message in take(right, 5):
        assert [os.fstat(fd).st_ino for fd in message.fds] == message.header["pipes"]
        assert not any(os.get_inheritable(fd) for fd in message.fds)
        assert "fds" not in message.header
        for fd in message.fds:
            os.close(fd)


def test_who_has_taken_a_message_with_a_descriptor_may_be_gone_at_once(
    ends: tuple[Channel, Channel], monkeypatch: pytest.MonkeyPatch
) -> None:
    left, right = ends
    send_fds = socket.send_fds
    taken: list[dict[str, Any]] = []

    def send_and_lose(*given: Any) -> int:
        sent = send_fds(*given)
        (message,) = right.receive(wait=True) or ()
        taken.append(message.header)
        os.close(message.fds[0])
        right.close()
        return sent

    monkeypatch.setattr(socket, "send_fds", send_and_lose)
    with open(os.devnull, "rb") as file:
        left.send({"go": True}, fds=[file.fileno()])
    assert taken == [{"go": True}]


def test_a_descriptor_travels_with_a_message_that_takes_many_reads(ends: tuple[Channel, Channel]) -> None:
    left, right = ends
    with open(os.devnull) as file, running(lambda: left.send({}, [bytes(4 * CHUNK)], [file.fileno()])):
        (message,) = take(right, 1)
    assert len(message.blobs[0]) == 4 * CHUNK
    (fd,) = message.fds
    assert os.readlink(f"/proc/self/fd/{fd}") == os.devnull
    os.close(fd)


def beneath(channel: Channel) -> socket.socket:
    """The socket of a channel, for bytes that a channel would not send."""
    return socket.socket(fileno=os.dup(channel.fileno()))


def test_descriptors_that_nobody_took_are_closed_with_the_channel(ends: tuple[Channel, Channel]) -> None:
    left, right = ends
    with open(os.devnull) as file, beneath(left) as raw:
        # They come with the first byte, and the frame never ends.
        socket.send_fds(raw, [lengthy(b'{"fds": 2, "blobs": [100]}')], [file.fileno()] * 2)
    assert right.receive(wait=True) == []


def test_descriptors_that_came_before_a_broken_frame_are_closed(ends: tuple[Channel, Channel]) -> None:
    left, right = ends
    with open(os.devnull) as file, beneath(left) as raw:
        socket.send_fds(raw, [lengthy(b'{"fds": 1}') + lengthy(b"nonsense")], [file.fileno()])
    with pytest.raises(StreamError):
        right.receive(wait=True)


@pytest.mark.parametrize("count", [1, 32, HUGE, -1, True, 1.0, "1", None, []])
def test_descriptors_that_did_not_arrive_are_missed(ends: tuple[Channel, Channel], count: object) -> None:
    left, right = ends
    with beneath(left) as raw:
        raw.sendall(lengthy(json.dumps({"fds": count}).encode()))
    with pytest.raises(StreamError, match="descriptors"):
        right.receive(wait=True)


def test_threads_that_send_at_once_do_not_mix(ends: tuple[Channel, Channel]) -> None:
    left, right = ends
    each, threads = 60, 4
    size = random.Random(0)
    sizes = [[size.choice([0, 1, 1000, CHUNK + 1]) for _ in range(each)] for _ in range(threads)]

    def sender(number: int) -> Callable[[], None]:
        def send() -> None:
            with open(os.devnull) as file:
                for at, length in enumerate(sizes[number]):
                    left.send({"from": number, "at": at}, [bytes([number]) * length], [file.fileno()] * (at % 2))

        return send

    with running(*map(sender, range(threads))):
        messages = take(right, each * threads)
    for number in range(threads):
        mine = [message for message in messages if message.header["from"] == number]
        assert [message.header["at"] for message in mine] == list(range(each))
        assert [message.blobs for message in mine] == [[bytes([number]) * length] for length in sizes[number]]
        assert [len(message.fds) for message in mine] == [at % 2 for at in range(each)]
    for fd in [fd for message in messages for fd in message.fds]:
        os.close(fd)


def test_a_sender_waits_for_a_slow_reader(ends: tuple[Channel, Channel]) -> None:
    left, right = ends
    sent = threading.Event()

    def send() -> None:
        left.send({}, [bytes(16 * CHUNK)])
        sent.set()

    with running(send):
        assert right.receive(wait=True) == []
        assert not sent.is_set()
        take(right, 1)
    assert sent.is_set()


def test_a_message_is_as_long_as_memory_allows(ends: tuple[Channel, Channel]) -> None:
    left, right = ends
    blob = memoryview(bytearray(32 * 2**20))
    blob[:4] = b"head"
    with running(lambda: left.send({}, [blob])):
        (message,) = take(right, 1)
    assert message.blobs == [blob]


def test_both_ends_of_a_pair_are_private(ends: tuple[Channel, Channel]) -> None:
    for channel in ends:
        assert fcntl.fcntl(channel.fileno(), fcntl.F_GETFD) & fcntl.FD_CLOEXEC
