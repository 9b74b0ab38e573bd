"""Whom `notify=` tells."""

from __future__ import annotations

from typing import Any

import pytest

from notebook_accel.config.addresses import Address, check, read, resolve
from notebook_accel.errors import ConfigurationError


@pytest.fixture(autouse=True)
def variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK", "https://hooks.slack.com/services/secret")
    monkeypatch.setenv("TOPIC", "mine")
    monkeypatch.setenv("WORD", "word")
    monkeypatch.delenv("NOTHING", raising=False)


@pytest.mark.parametrize(
    ("target", "address"),
    [
        ("https://example.org/a", ("", "https://example.org/a")),
        ("ntfy:topic", ("ntfy", "https://ntfy.sh/topic")),
        ("ntfy:$TOPIC", ("ntfy", "https://ntfy.sh/mine")),
        ("ntfy:https://example.org/topic", ("ntfy", "https://example.org/topic")),
        ("slack:$HOOK", ("slack", "https://hooks.slack.com/services/secret")),
        ("$HOOK", ("", "https://hooks.slack.com/services/secret")),
    ],
)
def test_a_target_is_stored_as_it_was_given_and_resolved_when_it_is_used(target: str, address: Any) -> None:
    assert check("notify", target) == (target,)
    assert resolve(target, {"HOOK": "https://hooks.slack.com/services/secret", "TOPIC": "mine"}) == Address(*address)


def test_several_targets_and_functions_are_taken() -> None:
    assert check("notify", ["ntfy:a", print]) == ("ntfy:a", print)
    assert check("notify", print) == (print,)
    assert check("NOTEBOOK_ACCEL_NOTIFY", read("ntfy:a  slack:$HOOK")) == ("ntfy:a", "slack:$HOOK")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (3, "must be 'https://example.org/hook', 'ntfy:my-topic', 'slack:\\$SLACK_WEBHOOK', or a function, or a list"),
        ([None], "must be "),
        ("topic", "has no address"),
        ("$WORD", "has no address"),
        ("file:///etc/passwd", "has no address"),
        ("slack:$NOTHING", "the environment variable NOTHING is not set"),
        ("https://me:word@example.org", "has an address with a secret"),
        ("https://example.org/?token=word", "has an address with a secret"),
        ("slack:https://hooks.slack.com/services/secret", "put it into an environment variable"),
    ],
)
def test_mistakes_are_told_without_the_secret(value: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as raised:
        check("notify", value)
    if "an address with a secret" in message:
        assert "word" not in str(raised.value)
