"""How an exception of a rank reads."""

from __future__ import annotations

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
