"""The decorator of option classes, whose unknown keywords are answered with what to write instead."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, TypeVar

from notebook_accel.config.settings import SETTINGS
from notebook_accel.config.unknown_arguments.explained import explained

T = TypeVar("T")
OF_THE_ACCELERATOR = """cpu device_placement dynamo_backend gradient_accumulation_steps kwargs_handlers log_with
    mixed_precision rng_types step_scheduler_with_optimizer"""
"""The arguments of an `Accelerator` that are neither option classes nor in one as a field."""
OF_THE_LAUNCH = {row.argument for row in SETTINGS.values() if row.argument}
_CALLS: dict[type[Any], str] = {}
"""The option classes, each with its argument of an `Accelerator`, in which `{}` stands for the object."""


def option_class(call: str, tried: Mapping[str, str] | None = None) -> Callable[[type[T]], type[T]]:
    """A decorator for a dataclass of options, which answers unknown keywords with what to write instead.

    It changes nothing else: the signature, `fields`, `replace`, and pickling are those of the dataclass.

    Args:
        call: The argument of an `Accelerator` that takes the object, such as `kwargs_handlers=[{}]`.
        tried: Keywords that people try, separated by spaces, by the field that they stand for, or by a sentence.
    """
    instead = {keyword: text for text, keywords in (tried or {}).items() for keyword in keywords.split()}

    def decorate(kind: type[T]) -> type[T]:
        def advice(keyword: str, given: Mapping[str, Any]) -> str:
            return _in_this_class(kind, keyword, instead) or _elsewhere(keyword, given[keyword])

        _CALLS[kind] = call
        type.__setattr__(kind, "__init__", explained(advice)(kind.__init__))
        return kind

    return decorate


def option_classes() -> list[type[Any]]:
    """All option classes, in the order of their definition."""
    return list(_CALLS)


def calls_with(keyword: str, value: object) -> str:
    """The arguments of an `Accelerator` that give a value to the option of this name; empty if there is none."""
    found = [(kind, call) for kind, call in _CALLS.items() if keyword in _names(kind)]
    return " or ".join(call.format(f"{kind.__name__}({keyword}={value!r:.60})") for kind, call in found)


def _names(kind: Any) -> list[str]:
    return [field.name for field in fields(kind)]


def _in_this_class(kind: type[Any], keyword: str, instead: Mapping[str, str]) -> str:
    names = _names(kind)
    # In a configuration file, the keys of most options are the names of fields after a prefix.
    found = instead.get(keyword) or next((name for name in names if keyword.endswith(f"_{name}")), "")
    return f"pass {found}" if found in names else found


def _elsewhere(keyword: str, value: object) -> str:
    if call := calls_with(keyword, value):
        return f"pass {call} to the Accelerator"
    if keyword in OF_THE_ACCELERATOR.split():
        return "pass it to the Accelerator"
    return "pass it to notebook_launcher" if keyword in OF_THE_LAUNCH else ""
