"""Whatever comes from files and sockets is read, or refused with an error of this package: no hang, no flood of memory.

`scripts/fuzz` tries as many examples as it is told.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from notebook_accel.config import file as config_file
from notebook_accel.errors import ConfigurationError, JobLostError, StreamError
from notebook_accel.events import EVENTS, Lines, Metrics, from_wire
from notebook_accel.launch.driver.attach import jobs
from notebook_accel.launch.job import describe
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.journal import records
from notebook_accel.launch.journal.state_file import decode
from notebook_accel.launch.journal.writing import Journal
from notebook_accel.launch.show.output import LineReader
from notebook_accel.launch.wire.plain_text import plain
from notebook_accel.launch.wire.stream import Decoder, encode
from notebook_accel.panel import html_page
from notebook_accel.train.checkpoints import weights
from tests.launch.journal.cases import followed, put_state, state_of

fuzzed = settings(
    max_examples=int(os.environ.get("FUZZ_EXAMPLES", "40")),
    derandomize="FUZZ_EXAMPLES" not in os.environ,
    suppress_health_check=list(HealthCheck),
)
_SECONDS = 5.0
_MOST_MEMORY = 64 * 2**20

numbers = st.integers() | st.floats() | st.sampled_from([10**400, -(10**400), 2**63, -1, 1e308])
text = st.text(st.characters(exclude_categories=()), max_size=30)
values = st.recursive(
    st.none() | st.booleans() | numbers | text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=10,
)


@contextlib.contextmanager
def bounded() -> Iterator[None]:
    """Fails if the block takes long, or much memory."""
    tracemalloc.start()
    began = time.thread_time()
    try:
        yield
        seconds, (_, peak) = time.thread_time() - began, tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert seconds < _SECONDS, f"{seconds:.1f} s"
    assert peak < _MOST_MEMORY, f"{peak / 2**20:.0f} MiB"


def damaged(data: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    """Valid bytes, of which a part is replaced by any others."""

    def damage(given: tuple[bytes, int, int, bytes]) -> bytes:
        whole, start, length, other = given
        start %= len(whole) + 1
        return whole[:start] + other + whole[start + length :]

    return st.tuples(data, st.integers(0, 2000), st.integers(0, 50), st.binary(max_size=50)).map(damage)


def frames_of(header: dict[str, Any]) -> bytes:
    return encode(header, [b"blob"])


frames = st.dictionaries(text, values, max_size=4).map(frames_of)


@fuzzed
@given(st.lists(damaged(frames) | st.binary(max_size=200), max_size=4), st.integers(1, 100))
def test_frames(pieces: list[bytes], size: int) -> None:
    data = b"".join(pieces)
    with bounded(), contextlib.suppress(StreamError):
        decoder = Decoder()
        for start in range(0, len(data), size):
            for header, blobs in decoder.feed(data[start : start + size]):
                assert isinstance(header, dict)
                assert all(isinstance(blob, bytearray) for blob in blobs)


@pytest.mark.parametrize("blobs", ["0," * 200_000 + "0", "1" * 4000, "[" * 100_000])
def test_frames_that_announce_much(blobs: str) -> None:
    raw = b'{"blobs": [' + blobs.encode() + b"]}"
    with bounded(), contextlib.suppress(StreamError):
        list(Decoder().feed(len(raw).to_bytes(4, "big") + raw + b"0" * 1000))


kinds = st.sampled_from(sorted(EVENTS))
headers = st.dictionaries(
    st.sampled_from(["at", "size", "status", "rank", "text", "stream", "values", "step", "bar", "n", "total", "phase",
                     "pid", "host", "chain", "frames", "kind", "name", "first", "id", "error", "count"]) | text,
    values, max_size=8,
)  # fmt: skip


@fuzzed
@given(st.tuples(headers, kinds).map(lambda given: {**given[0], "kind": given[1]}))
def test_headers_of_events(header: dict[str, Any]) -> None:
    with bounded(), contextlib.suppress(StreamError):
        from_wire(header)


def journal_of(state: Path) -> bytes:
    """A journal, written with the folder as the place of jobs."""
    job = Job("train", 0, 2)
    record = Journal(job).open()
    job.apply(0, Lines("stdout", ["hello"]))
    job.apply(0, Metrics({"loss": 1.0}, 1))
    return state_of(record)


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("state")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(records.VARIABLE, str(folder))
        yield folder


@fuzzed
@given(st.data())
def test_journals(state: Path, data: st.DataObject) -> None:
    if not records.all_records():
        journal_of(state)
    record = records.all_records()[0]
    whole = state_of(record) if not (state / "whole").exists() else (state / "whole").read_bytes()
    (state / "whole").write_bytes(whole)
    lines: list[bytes] = []
    for _ in range(data.draw(st.integers(0, 3))):
        rank, header, kind = data.draw(st.none() | st.integers(-1, 3)), data.draw(headers), data.draw(kinds)
        lines.append(json.dumps({"rank": rank, **header, "kind": kind}).encode())
    put_state(record, data.draw(damaged(st.just(whole + b"\n".join([*lines, b""])))))
    with bounded():
        jobs()
        with contextlib.suppress(JobLostError):
            job = followed(record)
            describe.describe(job)
            html_page.draw(job)


@fuzzed
@given(st.binary(max_size=100) | st.dictionaries(text, values, max_size=4).map(lambda each: json.dumps(each).encode()))
def test_lines_of_journals(line: bytes) -> None:
    with bounded():
        decode(line)


BOMB = "num_processes: [&a0 [x, x]" + "".join(f", &a{i} [*a{i - 1}, *a{i - 1}]" for i in range(1, 25)) + "]"


@fuzzed
@given(
    st.text("abc:-[]{}&*!|>'\"#%@, \n\t0123456789._eE+~?", max_size=60)
    | st.dictionaries(st.sampled_from(["num_processes", "fsdp_config", "env", "device", "gpu_ids"]) | text, values)
    .map(lambda each: json.dumps(each))
)  # fmt: skip
@example(BOMB)
@example("num_processes: &a [*a]")
@example("num_processes: " + "[" * 400)
@example("num_processes: " + "1" * 5000)
@example("num_processes: 2001-99-99")
@example("? [a]\n: 1")
@example("num_processes: !!binary x")
@example("num_processes: !!int x")
def test_files_of_settings(tmp_path_factory: pytest.TempPathFactory, content: str) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzzed.yaml"
    path.unlink(missing_ok=True)
    path.write_text(content, encoding="utf-8", errors="surrogateescape" if content.isascii() else "replace")
    with bounded(), contextlib.suppress(ConfigurationError):
        config_file.read(path)


@fuzzed
@given(values | st.dictionaries(st.just("weight_map"), values | st.dictionaries(text, text, max_size=3), min_size=1))
@example({"weight_map": {"a": "../../etc/passwd"}})
@example({"weight_map": {"a": 5}})
@example({"weight_map": [["a"]]})
def test_indexes_of_shards(tmp_path_factory: pytest.TempPathFactory, content: Any) -> None:
    index = tmp_path_factory.getbasetemp() / "model.safetensors.index.json"
    index.write_text(json.dumps(content), encoding="utf-8")
    with bounded(), contextlib.suppress(ConfigurationError):
        weights.files(index)


codes = st.lists(
    st.sampled_from(["\x1b", "\x1b]", "\x1b[", "\x07", "\x1b\\", ";", "31m", "\r", "\n", "8;;http://x", "\ud83d", "é"])
    | text,
    max_size=20,
).map("".join)


@fuzzed
@given(codes, st.sampled_from([1, 1000, 30_000]))
@example("\x1b]", 32_000)
@example("\x1b[0", 32_000)
@example("\r", 200_000)
def test_escape_sequences(written: str, times: int) -> None:
    much = written[: max(1, 200_000 // times)] * times
    with bounded():
        assert not set(plain(much)) & set("\x1b\x07")
        reader = LineReader()
        reader.feed(much.encode(errors="surrogatepass"), 0.0)
        reader.rest()
