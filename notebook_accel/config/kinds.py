"""The kinds of values that settings have: how each is read from text, checked, written as text, and shown in help."""

from __future__ import annotations

import functools
import math
import os
import re
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from notebook_accel.config import addresses, durations, remote_folders, ssh_hosts
from notebook_accel.errors import ConfigurationError, closest

LABEL_FIELDS = ("role_name", "rank", "local_rank")
JOIN_TIMEOUT = 300.0


def _to_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True)
class Kind:
    """One kind of value. Its functions take the name of the value, for messages, and the value."""

    check: Callable[[str, Any], Any]
    """Returns the value as settings hold it; raises `ConfigurationError` if it is not valid."""
    read: Callable[[str], Any] = str
    """Converts text. Text that it can't convert is returned unchanged, and the check rejects it."""
    write: Callable[[Any], str] = _to_text
    """Converts to text, for a rank's environment."""
    placeholder: str = "TEXT"
    """Stands for the value on help pages."""
    choices: tuple[str, ...] = ()
    """Values that completion offers."""

    def convert(self, value: Any) -> Any:
        """Converts a value from where numbers may be text: a file, a variable, a command line."""
        if value is False and "no" in self.choices:
            return "no"  # YAML reads an unquoted `no` so
        return self.read(value) if isinstance(value, str) else value

    def parse(self, name: str, value: Any) -> Any:
        """Converts and checks such a value."""
        return self.check(name, self.convert(value))


def integer(least: int, most: int | None = None) -> Kind:
    """A whole number, at least that; and at most another one."""

    def check(name: str, value: Any) -> int:
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise ConfigurationError(f"{name} must be a whole number, not {value!r:.80}")
        if value.__index__() < least:
            raise ConfigurationError(f"{name}={value!r}: it must be at least {least}")
        if most is not None and value.__index__() > most:
            raise ConfigurationError(f"{name}={value!r}: it must be at most {most}")
        return int(value.__index__())

    return Kind(check, _read_number, placeholder="N")


def choice(*choices: str) -> Kind:
    """One of these words, or a member of an enum of Accelerate's whose value is one. In text, case does not matter."""

    def check(name: str, value: Any) -> str:
        value = getattr(value, "value", value)
        if value not in choices:
            raise ConfigurationError(f"{name}={value!r} is unknown; choose one of {', '.join(map(repr, choices))}")
        return str(value)

    def read(text: str) -> str:
        return text.strip().upper() if choices[0].isupper() else text.strip().lower()

    return Kind(check, read, placeholder="|".join(choices), choices=choices)


def device(*choices: str) -> Kind:
    """One of these kinds, by its name or as a `torch.device`; `gpu` is `cuda`."""
    named = choice(*choices)

    def check(name: str, value: Any) -> Any:
        kind = getattr(value, "type", value)
        return named.check(name, "cuda" if kind == "gpu" else kind)

    return Kind(check, named.read, placeholder=named.placeholder, choices=choices)


def pattern(expression: str, example: str, placeholder: str) -> Kind:
    """Text that matches a regular expression; the example says for messages how it is written."""

    def check(name: str, value: Any) -> str:
        if not re.fullmatch(expression, str(value)):
            raise ConfigurationError(f"{name} {value}: write {example}")
        return str(value)

    return Kind(check, placeholder=placeholder)


def compiler(*known: str) -> Kind:
    """A backend of torch.compile: one that every installation has, or another, if it is not one of these misspelled."""

    def check(name: str, value: Any) -> str:
        if value not in known and (close := closest(str(value), known, 0.8)):
            raise ConfigurationError(f"{name}={value!r} is unknown; did you mean {close}?")
        return str(value)

    return Kind(check, choice(*known).read, str.upper, placeholder="NAME", choices=known)


def _check_seconds(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        raise ConfigurationError(f"{name} must be a number of seconds above 0, not {value!r:.80}")
    return float(value)


def _check_interval(name: str, value: Any) -> int | str:
    kind = _check_duration if isinstance(value, str) else integer(1).check
    try:
        found: int | str = kind(name, value)
        return found
    except ConfigurationError:
        raise ConfigurationError(
            f"{name}={value!r:.80} must be a number of steps, such as 500, or a time such as '5 min'"
        ) from None


def _check_duration(name: str, value: Any) -> str:
    if not isinstance(value, str) or durations.seconds(value) is None:
        raise ConfigurationError(f"{name}={value!r:.80} must be a time such as '5 min', '30 s' or '8h30m'")
    return value


def _check_folder(name: str, value: Any) -> str:
    if not isinstance(value, (str, os.PathLike)) or "\0" in str(value):
        raise ConfigurationError(f"{name} must be a folder, not {value!r:.80}")
    folder = os.fspath(value)
    remote_folders.check_slashes(name, folder)
    return remote_folders.check(name, folder) if remote_folders.is_remote(folder) else folder


def _check_port(name: str, value: Any) -> int:
    if isinstance(value, bool) or not re.fullmatch(r"-?\d+", str(value)):
        raise ConfigurationError(f"{name} must be a port number, not {value!r:.80}")
    if not 0 <= int(value) <= 65535:
        raise ConfigurationError(f"{name}={value!r} is not a port: ports are 0 (any free one) to 65535")
    return int(value)


def _check_address(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ConfigurationError(f"{name} must be a host name or an address, not {value!r}")
    return value


def endpoint(name: str, value: Any) -> tuple[str, int]:
    """Checks `host:port`."""
    match = re.fullmatch(r"(.+):(\d+)", str(value))
    if match is None:
        raise ConfigurationError(f'{name} must be written "host:port", not {value!r}')
    if int(match[2]) > 65535:
        raise ConfigurationError(f"{name}={value!r} has no port: ports are 0 (any free one) to 65535")
    return match[1], int(match[2])


def _check_cluster(name: str, value: Any) -> str:
    if isinstance(value, str) and value.startswith(ssh_hosts.PREFIX):
        ssh_hosts.check(name, value)
    elif value not in ("", "auto", "slurm"):
        try:
            endpoint(name, value.removeprefix("ray://") if isinstance(value, str) else value)
        except ConfigurationError:
            raise ConfigurationError(
                f"{name}={value!r} is not a cluster: write 'auto', 'ray://HOST:10001' or 'HOST:6379', 'slurm', or "
                "'ssh://HOST1,HOST2'"
            ) from None
    return str(value)


_RENDEZVOUS = choice("static", "c10d")


def explain_unavailable_rendezvous(name: str, value: Any) -> str:
    """The message for another rendezvous backend: why it is not available, and what to do."""
    return (
        f"{name}={value!r} is not available: the rendezvous needs an address that is known beforehand. Leave it at "
        '"static", and give master_addr, use_port and node_rank.'
    )


def _check_join_timeout(name: str, value: Any) -> float:
    if not isinstance(value, Mapping) or set(value) - {"timeout", "join_timeout"}:
        raise ConfigurationError(
            f"{name}={value!r} is not valid: the only setting is {{'timeout': seconds}}, how long to "
            "wait for the other machines"
        )
    return max((_check_seconds(name, each) for each in value.values()), default=JOIN_TIMEOUT)


def _check_words(name: str, value: Any, *, most: int, lines: bool) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ConfigurationError(f"{name} must be a non-empty string, not {value!r:.80}")
    found = value.strip()
    if len(found) > most:
        raise ConfigurationError(f"{name} has {len(found)} characters: give at most {most}")
    if not lines and len(found.splitlines()) > 1:
        raise ConfigurationError(f"{name}={value!r:.80} has several lines: give one, and put the rest into notes=")
    return found


def _check_label(name: str, value: Any) -> str:
    names = ", ".join(f"${{{each}}}" for each in LABEL_FIELDS)
    try:
        string.Template(value).substitute(dict.fromkeys(LABEL_FIELDS, ""))
    except (TypeError, ValueError, KeyError) as error:
        raise ConfigurationError(f"{name}={value!r} can't be filled in ({error!r}); it may use {names}") from None
    return str(value)


def _check_gpus(name: str, value: Any) -> tuple[int, ...]:
    if isinstance(value, (int, str)) or not isinstance(value, Sequence) or not value:
        count = type(value) is int and value > 0
        number = f": for {value} GPUs, pass num_processes={value}; with wait='free', any that are free" if count else ""
        raise ConfigurationError(f"{name} must be a list of GPU numbers such as [0, 2], not {value!r}{number}")
    if wrong := [index for index in value if isinstance(index, str)]:  # of text such as `0,x`
        raise ConfigurationError(f"{name} must be whole numbers such as 0,2, not {wrong[0]!r}")
    return tuple(integer(0).check(name, index) for index in value)


def _check_environment(name: str, value: Any) -> dict[str, str]:
    if isinstance(value, str):
        raise ConfigurationError(
            f"{name} {value}: write {name} NAME=VALUE"
            if name.startswith("-")
            else f"{name}={value!r} must be a dict of environment variables"
        )
    if not isinstance(value, Mapping):
        raise ConfigurationError(f"{name} must be a dict of environment variables, not {value!r:.80}")
    for key, text in value.items():
        if not isinstance(key, str) or not key or "=" in key or "\0" in key:
            raise ConfigurationError(f"{name}: {key!r} is not the name of an environment variable")
        if not isinstance(text, (str, int, float)) or "\0" in str(text):
            raise ConfigurationError(f"{name}[{key!r}] must be a string, not {text!r:.80}")
    return {key: str(text) for key, text in value.items()}


def _check_flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ConfigurationError(f"{name} must be true or false, not {value!r:.80}")
    return value


def _read_number(text: str) -> Any:
    return int(text) if re.fullmatch(r"\s*-?\d+\s*", text) else text


def read_number(text: Any) -> Any:
    """A number that is written as text, whole if it is; anything else unchanged."""
    if not isinstance(text, str):
        return text
    whole = _read_number(text)
    return whole if isinstance(whole, int) else _read_seconds(text)


def _check_norm(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        raise ConfigurationError(f"{name}={value!r:.80} must be a number above 0")
    return float(value)


def _read_seconds(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text


def _read_gpus(text: str) -> Any:
    return [_read_number(index) for index in text.split(",")] if text.strip() else text


def _read_environment(text: str) -> Any:
    name, equals, value = text.partition("=")
    return {name: value} if equals else text


WORDS = {
    **dict.fromkeys(("y", "yes", "t", "true", "on", "1"), True),
    **dict.fromkeys(("n", "no", "f", "false", "off", "0"), False),
}
"""What means true or false, as in Accelerate."""


def truth(text: str) -> bool | None:
    """What a text says of true and false, in upper or lower case; `None` if it says neither."""
    return WORDS.get(text.strip().lower())


def _read_flag(text: str) -> Any:
    found = truth(text)
    return text if found is None else found


text = Kind(lambda _, value: str(value))
"""Any text."""
title = Kind(functools.partial(_check_words, most=120, lines=False))
"""A line of text."""
notes = Kind(functools.partial(_check_words, most=4000, lines=True))
"""Some lines of text."""
flag = Kind(_check_flag, _read_flag, placeholder="true|false", choices=("true", "false"))
"""True or false."""
seconds = Kind(_check_seconds, _read_seconds, placeholder="SECONDS")
"""A time above 0."""
norm = Kind(_check_norm, _read_seconds, placeholder="NORM")
grams = replace(norm, placeholder="GRAMS")
"""A number above 0, as the one before it."""

optional_seconds = Kind(
    lambda name, value: None if value is None else _check_seconds(name, value),
    lambda text: None if text.strip().lower() in ("0", "off", "none") else _read_seconds(text),
    placeholder="SECONDS",
)
"""A time above 0, or `None` for no limit, as text `0`, `off` or `none`."""
interval = Kind(_check_interval, _read_number, placeholder="STEPS|TIME")
"""A number of steps, or a time with its unit."""
duration = Kind(_check_duration, placeholder="TIME")
"""A time with its unit."""
folder = Kind(_check_folder, placeholder="FOLDER")
"""A folder's path, or the address of a remote one; empty for none."""
rendezvous = replace(_RENDEZVOUS, check=lambda name, value: _RENDEZVOUS.check(name, value or "static"))
"""How nodes find each other."""
port = Kind(_check_port, placeholder="N")
"""A port number, also as text; 0 means any free port."""
address = Kind(_check_address, placeholder="HOST")
"""A host's name or address."""
cluster = Kind(_check_cluster, placeholder="ADDRESS", choices=("auto", "slurm"))
"""`auto`, `host:port` or `ray://host:port` of Ray, or `slurm`; empty for none."""
targets = Kind(addresses.check, addresses.read, placeholder="ADDRESS")
"""Addresses and functions that are notified."""
join_timeout = Kind(_check_join_timeout)
"""`{"timeout": seconds}`, how long to wait for other nodes."""
label = Kind(_check_label)
"""A template for the label of output lines."""
gpus = Kind(_check_gpus, _read_gpus, placeholder="0,2")
"""The numbers of GPUs, one for each rank."""
environment = Kind(_check_environment, _read_environment, placeholder="NAME=VALUE")
"""Environment variables."""
