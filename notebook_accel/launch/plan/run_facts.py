"""What a launch ran, as the panel shows it later: the call with its arguments, and the versions."""

from __future__ import annotations

import functools
import inspect
import platform
import reprlib
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from typing import Any

_MOST = 500
"""Characters of a call."""
_MOST_ARGUMENTS = 100
_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_PACKAGES = ("notebook-accel", "torch")


def call(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """The call as the user could have written it: `train(3, lr=0.1, model=<Net>)`.

    An object that is not plain data appears as its type only, since its own text may be long, and slow to make.
    """
    short = _Arguments()
    given = [*map(short.repr, args), *(f"{key}={short.repr(value)}" for key, value in kwargs.items())]
    text = f"{name}({', '.join(given)})"
    return text if len(text) <= _MOST else f"{text[: _MOST - 2]}…)"


def arguments(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, str]:
    """The arguments of a call as text, by parameter, with the defaults; empty if the parameters aren't known."""
    try:
        bound = inspect.signature(function, follow_wrapped=False).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return {}
    bound.apply_defaults()
    found: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        is_rest = bound.signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD
        found.update(value if is_rest else {name: value})
    return {name: short(value) for name, value in list(found.items())[:_MOST_ARGUMENTS]}


def short(value: Any) -> str:
    """A value as `call` shows it."""
    return _Arguments().repr(value)


@functools.cache
def versions() -> str:
    """`Python 3.12.4, notebook-accel 0.1.0, torch 2.9.1`. The kernel does not import torch for it."""
    found = [f"Python {platform.python_version()}"]
    for package in _PACKAGES:
        try:
            found.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:  # the package is used from its source
            continue
    return ", ".join(found)


class _Arguments(reprlib.Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 3
        self.maxstring = self.maxother = self.maxlong = 60

    def repr1(self, x: Any, level: int) -> str:
        if isinstance(x, (*_PLAIN, list, tuple, dict, set, frozenset)):
            return super().repr1(x, level)
        shape = getattr(x, "shape", None)
        size = "×".join(map(str, shape)) if isinstance(shape, tuple) and shape else ""
        return f"<{type(x).__name__}{' ' + size if size else ''}>"
