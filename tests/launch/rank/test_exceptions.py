"""How an exception of a rank reads."""

from __future__ import annotations

import re
import time

import pytest

from notebook_accel.errors import ConfigurationError, PayloadError, RankError
from notebook_accel.launch.rank import exceptions


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("no"), "ValueError: no"),
        (KeyError("name"), "KeyError: 'name'"),
        (ConfigurationError("leave it out"), "ConfigurationError: leave it out"),
        (RankError("rank 1 failed"), "RankError: rank 1 failed"),
        (PayloadError("returned a lock"), "returned a lock"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_exception_is_told_by_its_type_and_message(error: Exception, text: str) -> None:
    assert exceptions.describe(error, "running").chain[-1].text == text


@pytest.mark.parametrize(
    ("text", "from_peer"),
    [
        ("[/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation", True),
        ("NCCL error in: ProcessGroupNCCL.cpp:1970, remote process exited or there was a network error", True),
        ("connection to 10.0.0.1:29500 was lost", True),
        ("gloo" * 100_000, False),
        ("nccl" * 100_000, False),
        ("connection to " * 100_000, False),
    ],
    ids=lambda value: str(value)[:20],
)
def test_whether_another_rank_is_the_cause_is_read_from_texts_of_any_length(text: str, from_peer: bool) -> None:
    began = time.process_time()
    assert exceptions.describe(RuntimeError(text), "running").from_peer is from_peer
    assert time.process_time() - began < 2


@pytest.mark.parametrize("text", ["Resource temporarily unavailable", "can't start new thread"])
def test_a_refused_thread_is_explained_by_the_limit(text: str) -> None:
    found = exceptions.describe(RuntimeError(text), "running").chain[-1].text
    assert re.fullmatch(rf"RuntimeError: {text}: .*limit.*|RuntimeError: {text}: .* processes and threads .*", found)
    assert found.endswith("Launch fewer ranks, end processes that are no longer needed, or raise the limit.")


class Sealed(Exception):
    def __getattr__(self, name: str) -> object:
        raise RuntimeError(name)

    def __setattr__(self, name: str, value: object) -> None:
        raise RuntimeError(name)


class Blank(Exception):
    def __getattribute__(self, name: str) -> object:
        raise RuntimeError(name)


class BlankExit(SystemExit, Blank):
    pass


class Mute(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)

    def __reduce__(self) -> str:
        raise SystemExit(3)


class BlankMute(Blank, Mute):
    """Python can't format it either, which would otherwise report that its `__str__` fails."""


class NoGroup(Exception):
    exceptions = None


class BrokenGroup(Exception):
    @property
    def exceptions(self) -> object:
        raise RuntimeError("none")


class BrokenExit(SystemExit):
    @property
    def code(self) -> int:  # type: ignore[override]
        raise RuntimeError("none")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (Sealed("no"), "Sealed: "),
        (Blank("no"), "Blank: no"),
        (BlankExit(2), "BlankExit: 2"),
        (Mute("no"), "Mute: <exception str() failed>"),
        (BlankMute("no"), "BlankMute: <exception str() failed>"),
        (NoGroup("no"), "NoGroup: no"),
        (BrokenGroup("no"), "BrokenGroup: no"),
        (BrokenExit(2), "BrokenExit: 2"),
        (ValueError("\ud83d"), "ValueError: \\ud83d"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_exception_whose_class_fails_is_told_all_the_same(error: BaseException, text: str) -> None:
    try:
        raise error
    except BaseException:
        outer = ValueError("outer")
        outer.__context__ = error
    inner, told = exceptions.describe(outer, "running"), exceptions.describe(error, "running")
    assert [inner.chain[0].text, told.chain[-1].text] == [told.chain[-1].text, told.chain[0].text]
    assert text in told.chain[-1].text
    assert told.exit_code == (2 if issubclass(type(error), SystemExit) else None)
    exceptions.release(error)


def test_of_a_long_chain_the_first_and_the_last_are_told_in_time() -> None:
    error = ValueError(0)
    for number in range(1, 5000):
        try:
            raise ValueError(number) from error
        except ValueError as outer:
            error = outer
    began = time.process_time()
    told = exceptions.describe(error, "running").chain
    exceptions.release(error)
    assert time.process_time() - began < 2
    assert [told[0].text, told[6].text, told[-1].text] == [
        "ValueError: 0",
        "[4,988 more exceptions left out]",
        "ValueError: 4999",
    ]
    assert error.__cause__ is not None


def fetch(index: int) -> None:
    raise KeyError(f"no image {index}")


@pytest.mark.parametrize("chained", [False, True])
def test_the_error_of_a_loaders_worker_is_told_as_the_workers_own(chained: bool) -> None:
    from torch._utils import ExceptionWrapper

    try:
        try:
            fetch(7)
        except KeyError as error:
            if chained:
                raise OSError("no such folder") from error
            raise
    except Exception:
        caught = ExceptionWrapper(where="in DataLoader worker process 0")
    with pytest.raises((KeyError, OSError)) as raised:
        caught.reraise()
    (told,) = exceptions.describe(raised.value, "running").chain
    own = "OSError: no such folder" if chained else "KeyError: 'no image 7'"
    assert told.text.startswith(f"{own}\n(in DataLoader worker process 0)")
    assert ("no image 7" in told.text, told.type_name) == (True, own.partition(":")[0])
    assert "torch" not in "".join(frame.filename for frame in told.frames)
    if not chained:
        assert (told.frames[-1].name, told.frames[-1].line) == ("fetch", 'raise KeyError(f"no image {index}")')
