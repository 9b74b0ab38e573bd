"""To whom `notify=` sends: `https://…`, `ntfy:TOPIC`, `slack:$NAME`, where `$NAME` is an environment variable.

What such a variable holds is read only when something is sent: settings, and what is stored with a job, have its name.
"""

from __future__ import annotations

import os
import re
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from notebook_accel.errors import ConfigurationError

_SERVICES = ("ntfy", "slack")
_NTFY = "https://ntfy.sh/"
_VARIABLE = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")
_SECRET = ("hooks.slack.com", "discord.com", "discordapp.com")
"""Hosts whose addresses are secrets."""
_EXAMPLES = "'https://example.org/hook', 'ntfy:my-topic', 'slack:$SLACK_WEBHOOK', or a function"


class Address(NamedTuple):
    """Where a notification goes."""

    service: str
    """`ntfy` or `slack`; empty for an address that takes JSON."""
    url: str


def check(name: str, value: Any) -> tuple[Any, ...]:
    """Returns the targets: texts, and functions.

    Raises:
        ConfigurationError: One of them is neither, names a variable that is not set, or has a secret in it.
    """
    several = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    for target in several:
        if callable(target):
            continue
        if not isinstance(target, str):
            raise ConfigurationError(f"{name} must be {_EXAMPLES}, or a list of these, not {target!r:.80}")
        missing = [each for each in _VARIABLE.findall(target) if each not in os.environ]
        if missing:
            raise ConfigurationError(f"{name}={target!r:.80}: the environment variable {missing[0]} is not set")
        url = urllib.parse.urlsplit(resolve(target, os.environ).url)
        if url.scheme not in ("http", "https") or not url.hostname:
            raise ConfigurationError(f"{name}={target!r:.80} has no address: give {_EXAMPLES}")
        if not _VARIABLE.search(target) and ("@" in url.netloc or url.query or url.hostname in _SECRET):
            raise ConfigurationError(
                f"{name} has an address with a secret, which would be stored with the job: put it into an environment "
                f"variable, and give the name of that, as in {name}='$MY_WEBHOOK'"
            )
    return tuple(several)


def read(text: str) -> list[str]:
    """The targets in a variable, with spaces between them."""
    return text.split()


def resolve(target: str, environ: Mapping[str, str]) -> Address:
    """Where a target is, with the values of variables."""
    service, colon, rest = target.partition(":")
    if service not in _SERVICES or not colon:
        service, rest = "", target
    found = _VARIABLE.sub(lambda match: environ.get(match[1], ""), rest)
    return Address(service, _NTFY + found if service == "ntfy" and "://" not in found else found)
