"""The decorator of option classes, whose unknown keywords are answered with what to write instead."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, TypeVar

from notebook_accel.advice import explained, listed
from notebook_accel.config.settings import SETTINGS

T = TypeVar("T")
_OF_THE_LAUNCH = {row.argument for row in SETTINGS.values() if row.argument}
_CALLS: dict[type[Any], str] = {}
"""The option classes, each with its argument of an `Accelerator`, in which `{}` stands for the object."""


def option_class(call: str) -> Callable[[type[T]], type[T]]:
    """A decorator for a dataclass of options, which answers unknown keywords with what to write instead.

    It changes nothing else: the signature, `fields`, `replace`, and pickling are those of the dataclass.

    Args:
        call: The argument of an `Accelerator` that takes the object, such as `kwargs_handlers=[{}]`.
    """

    def decorate(kind: type[T]) -> type[T]:
        def without_prefix(keyword: str, given: Mapping[str, Any]) -> str:
            # In a configuration file, the keys of most options are the names of fields after a prefix.
            return next((f"pass {name}" for name in _names(kind) if keyword.endswith(f"_{name}")), "")

        def of_another(keyword: str, given: Mapping[str, Any]) -> str:
            call = calls_with(keyword, given[keyword])
            return f"pass {call} to the Accelerator" if call else ""

        _CALLS[kind] = call
        own = listed(kind.__name__), without_prefix
        look_ups = explained(*own, listed("options of an Accelerator"), of_another, of_the_launch)
        type.__setattr__(kind, "__init__", look_ups(kind.__init__))
        return kind

    return decorate


def option_classes() -> list[type[Any]]:
    """All option classes, in the order of their definition."""
    return list(_CALLS)


def calls_with(keyword: str, value: object) -> str:
    """The arguments of an `Accelerator` that give a value to the option of this name; empty if there is none."""
    found = [(kind, call) for kind, call in _CALLS.items() if keyword in _names(kind)]
    return " or ".join(call.format(f"{kind.__name__}({keyword}={value!r:.60})") for kind, call in found)


def of_an_option_class(keyword: str, given: Mapping[str, Any]) -> str:
    """What to write instead of a keyword of `Accelerator` that is an option's."""
    call = calls_with(keyword, given[keyword])
    return f"pass {call}" if call else ""


def of_the_launch(keyword: str, given: Mapping[str, Any]) -> str:
    """What to write instead of a keyword that is one of `notebook_launcher`."""
    return "pass it to notebook_launcher" if keyword in _OF_THE_LAUNCH else ""


def _names(kind: Any) -> list[str]:
    return [field.name for field in fields(kind)]
