"""What a rank has to say may be of any length: the launch ends, and tells what there is room for."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from notebook_accel import RankError, events, notebook_launcher, report
from notebook_accel.events import Bar, Phase, PhaseChanged
from notebook_accel.launch.wire import stream
from notebook_accel.launch.wire.pickling import OUT_OF_BAND
from notebook_accel.launch.wire.plain_text import both_ends, ends

LONG = 6_000_000


def raise_long() -> None:
    raise ValueError("1, " * LONG + "end")


def raise_less_long() -> None:
    """What could be sent, but not read."""
    raise ValueError("1, " * 1_000_000 + "end")


def leave_with_long_text() -> None:
    sys.exit("1, " * LONG + "end")


def recurse() -> None:
    sys.setrecursionlimit(150_000)

    def deeper(level: int) -> None:
        if level:
            deeper(level - 1)
        else:
            raise RecursionError("too deep")

    deeper(100_000)


def fail_again_and_again() -> None:
    error: Exception | None = None
    for number in range(200_000):
        try:
            raise ValueError(f"attempt {number}") from error
        except ValueError as again:
            error = again
    assert error is not None
    raise error


def raise_many() -> None:
    raise ExceptionGroup("many", [ValueError("1, " * LONG), *(ValueError("1, " * 100_000) for _ in range(200))])  # noqa: F821


def with_room_for(length: int, function: Callable[..., Any]) -> Any:
    """Calls it where messages may have only so many characters."""
    stream.MAX_HEADER = length
    return function()


def return_many_parts() -> list[Any]:
    import numpy as np

    return [np.zeros(OUT_OF_BAND, np.int8) for _ in range(500)]


def say_too_much() -> str:
    for detail in "fits", "x" * 5000:
        events.emit(PhaseChanged(Phase.RUNNING, detail))
    report(**{"x" * 5000: 1.0})
    report(short=2.0)
    for number, length in enumerate((2000, 2000, 5000)):  # the first two are too long together
        events.emit(Bar(number, 1, description="x" * length))
    assert events.request_input("x" * 5000, "> ") is None
    return "returned"


WAYS: dict[str, tuple[Callable[[], object], str, str]] = {
    "an exception": (raise_long, "ValueError: 1, 1, ", " characters left out"),
    "an exception that could be sent": (raise_less_long, "ValueError: 1, 1, ", " characters left out"),
    "the text of sys.exit": (leave_with_long_text, "SystemExit: 1, 1, ", " characters left out"),
    "a chain of exceptions": (fail_again_and_again, "ValueError: attempt 199999", "199,988 more exceptions left out"),
}
if sys.version_info >= (3, 11):  # before, a recursion is one of C too
    WAYS["a recursion"] = (recurse, "RecursionError: too deep", "98,002 more frames left out")
    WAYS["a group of exceptions"] = (
        raise_many,
        "ExceptionGroup: many (201 sub-exceptions)",
        "101 more left out",
    )


@pytest.mark.timeout(60)
@pytest.mark.parametrize("way", WAYS)
def test_a_failure_of_any_length_is_told(way: str) -> None:
    function, said, left_out = WAYS[way]
    with pytest.raises(RankError) as raised:
        notebook_launcher(function, (), 1, device="cpu")  # of several, one might be ended for the other's failure
    message = str(raised.value)
    assert message.startswith("rank 0 ")
    assert said in message
    assert left_out in message
    assert len(message) < 300_000
    assert len(str(raised.value.__cause__)) < 300_000
    printed = traceback.format_exception(raised.value)  # with the exception of the rank, and a group's members
    assert sum(map(len, printed)) < 500_000


def test_an_answer_that_is_still_too_long_is_a_short_failure() -> None:
    with pytest.raises(RankError, match=r"too long to be sent: a message header of \d+ bytes; at most 3000") as raised:
        notebook_launcher(with_room_for, (3000, raise_long), 2, device="cpu")
    assert "ValueError: 1, 1, " in str(raised.value)
    with pytest.raises(RankError, match="the returned value consists of too many parts"):
        notebook_launcher(with_room_for, (3000, return_many_parts), 2, device="cpu")


def test_what_else_is_too_long_is_left_out_and_nobody_waits(capfd: pytest.CaptureFixture[str]) -> None:
    job = notebook_launcher(with_room_for, (3000, say_too_much), 1, device="cpu", block=False)
    assert job.result() == ["returned"]
    assert set(job.metrics) == {"rank", "step", "seconds", "short"}
    assert {line.text.split(" message")[0] for line in job.ranks[0].lines} == {
        f"notebook-accel: a {kind!r}" for kind in ("phase", "reports", "bar", "asked")
    }
    assert set(job.ranks[0].bars) == {0, 1}


@pytest.mark.parametrize("length", [10, 11, 1000])
def test_a_shortened_text_has_both_its_ends_and_says_what_is_missing(length: int) -> None:
    text = "".join(chr(ord("a") + at % 26) for at in range(length))
    head, _, rest = both_ends(text, 10).partition(" … ")
    if length == 10:
        assert head == text
        return
    missing, _, tail = rest.partition(" … ")
    assert (head, tail) == (text[:8], text[-2:])
    assert missing == f"[{length - 10:,} characters left out]"


def test_the_ends_of_a_list_are_all_of_it_if_it_is_short() -> None:
    assert ends([1, 2, 3], 3) == ([1, 2, 3], [])
    assert ends([1, 2, 3, 4, 5], 3) == ([1, 2], [5])
