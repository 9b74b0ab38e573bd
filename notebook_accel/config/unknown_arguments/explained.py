"""The decorator that explains the unknown keywords of a function."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

from notebook_accel.errors import UnknownArgumentError, did_you_mean

P = ParamSpec("P")
R = TypeVar("R")
Advice = Callable[[str, Mapping[str, Any]], str]
"""What to write instead of a keyword, given all arguments of the call by name; empty if nothing is known about it."""


def explained(advice: Advice) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A decorator, with which a call that has an unknown keyword ends in an error that says what to write instead.

    Where there is no advice, the error suggests the parameter with the most similar name. The error of a constructor
    names the class of the object.

    Args:
        advice: Looks up the keyword.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        code = function.__code__
        positional = code.co_varnames[: code.co_argcount]
        known = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        constructs = function.__name__ == "__init__"

        @functools.wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            for keyword in kwargs:
                if keyword not in known:
                    given = {**dict(zip(positional, args, strict=False)), **kwargs}
                    title = type(args[0]).__name__ if constructs else function.__name__
                    raise UnknownArgumentError(_message(title, keyword, known, advice(keyword, given)))
            return function(*args, **kwargs)

        return checked

    return decorate


def _message(title: str, keyword: str, known: tuple[str, ...], advice: str) -> str:
    instead = f": {advice}" if advice else did_you_mean(keyword, [each for each in known if each != "self"])
    return f"{title}() has no argument {keyword!r}{instead}"
