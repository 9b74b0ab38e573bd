"""The valid values of each kind of setting. A check takes a name, for messages, and a value, and returns the value."""

from __future__ import annotations

import math
import re
import string
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from notebook_accel.errors import ConfigurationError

LABEL_FIELDS = ("role_name", "rank", "local_rank")
JOIN_TIMEOUT = 300.0
Check = Callable[[str, Any], Any]
"""Raises `ConfigurationError` for a value that is not valid."""


def integer(least: int) -> Check:
    """A whole number, at least that."""

    def check(name: str, value: Any) -> int:
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise ConfigurationError(f"{name} must be a whole number, not {value!r:.80}")
        if value.__index__() < least:
            raise ConfigurationError(f"{name}={value!r}: it must be at least {least}")
        return int(value.__index__())

    return check


def choice(*choices: str) -> Check:
    """One of these words, or a member of an enum of Accelerate's whose value is one."""

    def check(name: str, value: Any) -> str:
        value = getattr(value, "value", value)
        if value not in choices:
            raise ConfigurationError(f"{name}={value!r} is unknown; choose one of {', '.join(map(repr, choices))}")
        return str(value)

    return check


def device(*choices: str) -> Check:
    """One of these kinds, by its name or as a `torch.device`; `gpu` is `cuda`."""

    def check(name: str, value: Any) -> str:
        kind = getattr(value, "type", value)
        return str(choice(*choices)(name, "cuda" if kind == "gpu" else kind))

    return check


def seconds(name: str, value: Any) -> float:
    """A time above 0."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        raise ConfigurationError(f"{name} must be a number of seconds above 0, not {value!r:.80}")
    return float(value)


def optional_seconds(name: str, value: Any) -> float | None:
    """A time above 0, or `None` for no limit."""
    return None if value is None else seconds(name, value)


def port(name: str, value: Any) -> int:
    """A port's number, also as text; 0 stands for any free one."""
    if isinstance(value, bool) or not re.fullmatch(r"-?\d+", str(value)):
        raise ConfigurationError(f"{name} must be a port number, not {value!r:.80}")
    if not 0 <= int(value) <= 65535:
        raise ConfigurationError(f"{name}={value!r} has no port: ports are 0 (any free one) to 65535")
    return int(value)


def address(name: str, value: Any) -> str:
    """A host's name or address."""
    if not isinstance(value, str) or not value:
        raise ConfigurationError(f"{name} must be a host name or an address, not {value!r}")
    return value


def endpoint(name: str, value: Any) -> tuple[str, int]:
    """`host:port`."""
    match = re.fullmatch(r"(.+):(\d+)", str(value))
    if match is None:
        raise ConfigurationError(f'{name} must be written "host:port", not {value!r}')
    if int(match[2]) > 65535:
        raise ConfigurationError(f"{name}={value!r} has no port: ports are 0 (any free one) to 65535")
    return match[1], int(match[2])


def cluster(name: str, value: Any) -> str:
    """`auto`, `host:port` or `ray://host:port` of Ray, or `slurm`; empty for none."""
    if value not in ("", "auto", "slurm"):
        try:
            endpoint(name, value.removeprefix("ray://") if isinstance(value, str) else value)
        except ConfigurationError:
            raise ConfigurationError(
                f"{name}={value!r} is not a cluster: write 'auto', 'ray://HOST:10001' or 'HOST:6379', or 'slurm'"
            ) from None
    return str(value)


def rendezvous(name: str, value: Any) -> str:
    """How nodes find each other, which in a notebook is `static`."""
    if value not in ("static", ""):
        raise ConfigurationError(explain_unavailable_rendezvous(name, value))
    return "static"


def explain_unavailable_rendezvous(name: str, value: Any) -> str:
    """The message for another rendezvous backend: why it is not available, and what to do."""
    return (
        f"{name}={value!r} is not available: the rendezvous needs an address that is known beforehand. Leave it at "
        '"static", and give master_addr, use_port and node_rank.'
    )


def join_timeout(name: str, value: Any) -> float:
    """`{"timeout": seconds}`, how long to wait for other nodes."""
    if not isinstance(value, Mapping) or set(value) - {"timeout", "join_timeout"}:
        raise ConfigurationError(
            f"{name}={value!r} is not valid: the only setting is {{'timeout': seconds}}, how long to "
            "wait for the other machines"
        )
    return max((seconds(name, each) for each in value.values()), default=JOIN_TIMEOUT)


def label(name: str, value: Any) -> str:
    """A template for the label of output lines."""
    names = ", ".join(f"${{{each}}}" for each in LABEL_FIELDS)
    try:
        string.Template(value).substitute(dict.fromkeys(LABEL_FIELDS, ""))
    except (TypeError, ValueError, KeyError) as error:
        raise ConfigurationError(f"{name}={value!r} can't be filled in ({error!r}); it may use {names}") from None
    return str(value)


def gpus(name: str, value: Any) -> tuple[int, ...]:
    """The numbers of GPUs, one for each rank."""
    if isinstance(value, (int, str)) or not isinstance(value, Sequence) or not value:
        raise ConfigurationError(f"{name} must be a list of GPU numbers such as [0, 2], not {value!r}")
    return tuple(integer(0)(name, index) for index in value)


def environment(name: str, value: Any) -> dict[str, str]:
    """Environment variables."""
    if not isinstance(value, Mapping):
        raise ConfigurationError(f"{name} must be a dict of environment variables, not {value!r:.80}")
    for key, text in value.items():
        if not isinstance(key, str) or not key or "=" in key or "\0" in key:
            raise ConfigurationError(f"{name}: {key!r} is not the name of an environment variable")
        if not isinstance(text, (str, int, float)) or "\0" in str(text):
            raise ConfigurationError(f"{name}[{key!r}] must be a string, not {text!r:.80}")
    return {key: str(text) for key, text in value.items()}


def flag(name: str, value: Any) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise ConfigurationError(f"{name} must be true or false, not {value!r:.80}")
    return value


def word(name: str, value: Any) -> str:
    """Any text."""
    return str(value)


def detach(detach: Any, block: Any) -> None:
    """Whether and how to wait.

    Raises:
        ConfigurationError: The two contradict each other.
    """
    if not isinstance(detach, bool):
        raise ConfigurationError(f"detach must be True or False, not {detach!r:.80}")
    if detach and block:
        raise ConfigurationError(
            "detach=True contradicts block=True: a detached job runs elsewhere, and the call returns its Job at once. "
            "Leave block out, and wait with job.wait() or job.result()."
        )


def call(function: Any, args: Any, kwargs: Any) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """The function and its arguments, once they are what a call needs.

    Raises:
        ConfigurationError: The function cannot be called, or `args` or `kwargs` are not arguments.
    """
    if not callable(function):
        hint = "Pass the function itself, `train`, rather than what it returned, `train()`."
        raise ConfigurationError(f"the first argument must be a function, not {function!r:.80}. {hint}")
    if isinstance(args, (str, bytes)) or not isinstance(args, Sequence):
        raise ConfigurationError(f"args must be a tuple, not {args!r:.80}. For one argument write args=(value,).")
    if kwargs is not None and not (isinstance(kwargs, Mapping) and all(isinstance(key, str) for key in kwargs)):
        raise ConfigurationError(f"kwargs must be a dict with names as its keys, not {kwargs!r:.80}")
    return function, tuple(args), dict(kwargs or {})


# Conversions from text, as in variables and on command lines. A text that does not convert is returned as it is, and
# the check rejects it.


def read_number(text: str) -> Any:
    """A whole number."""
    return int(text) if re.fullmatch(r"\s*-?\d+\s*", text) else text


def read_seconds(text: str) -> Any:
    """A number that may have decimals."""
    try:
        return float(text)
    except ValueError:
        return text


def read_optional_seconds(text: str) -> Any:
    """A number that may have decimals, or a word for `None`: `0`, `off`, `none`."""
    return None if text.strip().lower() in ("0", "off", "none") else read_seconds(text)


def read_gpus(text: str) -> Any:
    """`0,2`."""
    return [read_number(index) for index in text.split(",")] if text.strip() else text


def read_flag(text: str) -> Any:
    """True or false, by the words that Accelerate accepts."""
    words = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    return words.get(text.strip().lower(), text)


def read_lower(text: str) -> str:
    """A word whose case does not matter."""
    return text.strip().lower()


def read_text(text: str) -> str:
    """The text itself."""
    return text
