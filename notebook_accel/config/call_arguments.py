"""The arguments of `notebook_launcher` as a layer; `unset` marks defaults, so that only given arguments count."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from notebook_accel.config import kinds
from notebook_accel.config.keys import what_to_write
from notebook_accel.config.layers import Layer
from notebook_accel.config.settings import SETTINGS
from notebook_accel.errors import ConfigurationError

T = TypeVar("T", str, int, float)


class _Unset:
    """A default value that is equal to the plain value and looks like it, but can be recognized as not given."""


class _UnsetText(_Unset, str):
    pass


class _UnsetInteger(_Unset, int):
    pass


class _UnsetNumber(_Unset, float):
    pass


_KINDS: dict[type, Any] = {str: _UnsetText, int: _UnsetInteger, float: _UnsetNumber}


_MISSING: Any = object()


def unset(value: T) -> T:
    """A default for a parameter, overridden by the notebook's settings, the environment and the file."""
    marked: T = _KINDS[type(value)](value)
    return marked


def from_call(arguments: Mapping[str, Any], location: str = "") -> Layer:
    """The layer of a call.

    Args:
        arguments: By their names in `notebook_launcher`; those that are not settings are ignored. `None`, and a
            default that `unset` made, count as not given.
        location: Where they were given, if not in a call; for instance, an option of `%%accelerate`.

    Raises:
        ConfigurationError: One of them is not valid.
    """
    given = {name: value for name, value in arguments.items() if not isinstance(value, _Unset)}
    if given.get("rdzv_backend") not in (None, "", "static"):
        raise ConfigurationError(kinds.explain_unavailable_rendezvous("rdzv_backend", given["rdzv_backend"]))
    values: dict[str, Any] = {}
    locations: dict[str, str] = {}
    for row in SETTINGS.values():
        value = given.get(row.argument, _MISSING)
        if value is not _MISSING and (value is not None or row.none_is_given):
            values[row.field], locations[row.field] = row.kind.check(row.argument, value), location or row.argument
    if endpoint := given.get("rdzv_endpoint"):
        address, port = kinds.endpoint("rdzv_endpoint", endpoint)
        if values.get("master_addr", address) != address or values.get("port", port) != port:
            raise ConfigurationError(
                f"rdzv_endpoint={endpoint!r} contradicts master_addr={values.get('master_addr')!r} or "
                f"use_port={values.get('port')!r}: give one of them"
            )
        values |= {"master_addr": address, "port": port}
        locations |= dict.fromkeys(("master_addr", "port"), "rdzv_endpoint")
    return Layer("call", values, locations)


def check_flag(name: str, value: Any) -> None:
    """An argument that is not a setting, and says yes or no.

    Raises:
        ConfigurationError: It says neither.
    """
    if not isinstance(value, bool):
        raise ConfigurationError(f"{name} must be True or False, not {value!r:.80}")


def check_detach(detach: Any, block: Any) -> None:
    """Whether and how to wait.

    Raises:
        ConfigurationError: The two contradict each other.
    """
    check_flag("detach", detach)
    if detach and block:
        raise ConfigurationError(
            "detach=True contradicts block=True: a detached job runs elsewhere, and the call returns its Job at once. "
            "Leave block out, and wait with job.wait() or job.result()."
        )


def check_call(function: Any, args: Any, kwargs: Any) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """The function and its arguments, once they are what a call needs.

    Raises:
        ConfigurationError: The function cannot be called, a call would run none of its code, or `args` or `kwargs` are
            not arguments.
    """
    if not callable(function):
        hint = "Pass the function itself, `train`, rather than what it returned, `train()`."
        raise ConfigurationError(f"the first argument must be a function, not {function!r:.80}. {hint}")
    _check_that_a_call_runs(function)
    if isinstance(args, (str, bytes)) or not isinstance(args, Sequence):
        write = "For one argument write args=(value,)."
        if type(args) is int:
            write += f" For {args} ranks write num_processes={args}."
        elif isinstance(args, Mapping):
            write += " For keyword arguments write kwargs={...}."
        raise ConfigurationError(f"args must be a tuple, not {args!r:.80}. {write}")
    if kwargs is not None and not (isinstance(kwargs, Mapping) and all(isinstance(key, str) for key in kwargs)):
        raise ConfigurationError(f"kwargs must be a dict with names as its keys, not {kwargs!r:.80}")
    return function, tuple(args), dict(kwargs or {})


def check_fit(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], given: str) -> None:
    """Refuses arguments that a call would refuse on every rank.

    Args:
        function: The function.
        args: Its positional arguments.
        kwargs: Its keyword arguments.
        given: What the user calls them: `lr as keyword arguments`.

    Raises:
        ConfigurationError: The function doesn't take them.
    """
    try:  # what a decorator has made of the function is called, which may add arguments
        signature = inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError):  # its parameters are not known
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        name = name_of(function)
        raise ConfigurationError(
            f"{name}() can't be called with {given}: {error}. Its parameters are {name}{signature!s:.300}"
        ) from None


def name_of(function: Callable[..., Any]) -> str:
    """The name of a function, as jobs have it."""
    inner = getattr(function, "func", function)  # a partial's
    return str(getattr(inner, "__name__", type(inner).__name__))


def _check_that_a_call_runs(function: Callable[..., Any]) -> None:
    name = getattr(function, "__name__", "function")
    if inspect.iscoroutinefunction(function):
        what, instead = "an async function", f"lambda: asyncio.run({name}())"
    elif inspect.isgeneratorfunction(function):
        what, instead = "a generator function", f"lambda: list({name}())"
    elif inspect.isasyncgenfunction(function):
        what, instead = "an async generator function", "a function that iterates over it in asyncio.run(...)"
    else:
        return
    raise ConfigurationError(f"{name} is {what}, so a call would run none of its code. Pass {instead} instead.")


def launch_advice(keyword: str, given: Mapping[str, Any]) -> str:
    """What to write instead of a keyword of `notebook_launcher`; empty if nothing is known about it."""
    if _is_parameter(keyword, given.get("function")):
        return f"it is a parameter of the function, so pass it in kwargs={{{keyword!r}: ...}}"
    return what_to_write(keyword, "notebook_launcher")


def debug_advice(keyword: str, given: Mapping[str, Any]) -> str:
    """The same for `debug_launcher`."""
    found = launch_advice(keyword, given)
    if keyword in {row.argument for row in SETTINGS.values()} | {"kwargs", "block", "detach", "in_process", "rules"}:
        there = ", which has it"
    elif found:
        there = f"; there, {found}"
    else:
        return ""
    return f"debug_launcher has only Accelerate's arguments. Call notebook_launcher(..., device='cpu'){there}"


def _is_parameter(keyword: str, function: Any) -> bool:
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # not a function, or one whose parameters are not known
        return False
    return keyword in parameters and parameters[keyword].kind.name in ("POSITIONAL_OR_KEYWORD", "KEYWORD_ONLY")
