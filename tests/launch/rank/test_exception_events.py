"""How an exception of a rank reads."""

from __future__ import annotations

import time

import pytest

from notebook_accel.errors import ConfigurationError, PayloadError, RankError
from notebook_accel.launch.rank import exception_events


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
    assert exception_events.describe(error, "running").chain[-1].text == text


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
    assert exception_events.describe(RuntimeError(text), "running").from_peer is from_peer
    assert time.process_time() - began < 2
