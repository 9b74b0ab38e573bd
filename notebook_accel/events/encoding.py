"""Events as JSON objects with binary blobs, the form in which sockets and journals carry them."""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from notebook_accel.errors import StreamError
from notebook_accel.events import control, items, jobs, ranks, reports, requests, rules
from notebook_accel.events.base import Blobs, Event, Frame, Phase
from notebook_accel.events.items import ItemsDone, ItemsGiven
from notebook_accel.events.jobs import Location, Stalled
from notebook_accel.events.ranks import (
    Failed,
    HotLine,
    LargestArrays,
    LiveArray,
    MemorySnapshot,
    OutOfMemory,
    PhaseChanged,
    Raised,
    Returned,
    Sampled,
    Shown,
    Stacks,
    StepTimes,
    ThreadStack,
    Written,
)
from notebook_accel.events.reports import Reports
from notebook_accel.events.requests import Collective, CollectivesRecorded, Profiled
from notebook_accel.events.rules import Rule, RuleChanged

EVENTS: dict[str, type[Event]] = {
    found.kind: found
    for module in (ranks, reports, jobs, requests, control, rules, items)
    for found in vars(module).values()
    if isinstance(found, type) and issubclass(found, Event) and found is not Event
}
"""Every event class, by its `kind`."""
BLOB_FIELDS: dict[type[Event], str] = {
    Failed: "exception",
    ItemsDone: "data",
    ItemsGiven: "data",
    MemorySnapshot: "data",
    Profiled: "trace",
    Reports: "columns",
    Returned: "value",
    Shown: "bundle",
    Written: "data",
}
"""The field of an event that travels as binary blobs, next to the JSON object."""
_LARGEST = 1e60
"""More than anything that is counted or measured; products and quotients of such numbers are still floats."""
_HEADER_FIELDS = {
    cls: tuple(item.name for item in fields(cls) if item.name != BLOB_FIELDS.get(cls)) for cls in EVENTS.values()
}


def to_wire(event: Event) -> tuple[dict[str, Any], Blobs]:
    """Returns `(header, blobs)`: a JSON-ready object, and the binary parts that follow it."""
    if type(event) in _PLAIN_FIELDS:
        return {"kind": event.kind, **vars(event)}, ()
    blob_field = BLOB_FIELDS.get(type(event))
    header = {"kind": event.kind, **{name: _to_json(getattr(event, name)) for name in _HEADER_FIELDS[type(event)]}}
    return header, getattr(event, blob_field) if blob_field else ()


def from_wire(header: Mapping[str, Any], blobs: Blobs = ()) -> Event:
    """Rebuilds an event.

    Raises:
        StreamError: The header names no known event, or its fields are not that event's.
    """
    values = dict(header)
    cls = EVENTS.get(str(values.pop("kind", "")))
    if cls is None:
        raise StreamError(f"no such event: {str(header)[:200]}")
    if values.keys() == _PLAIN_FIELDS.get(cls):
        event = object.__new__(cls)
        # The same as `cls(**values)`, in a third of the time: a frozen dataclass sets each field by a function call.
        vars(event).update(values)
        return event
    if cls in BLOB_FIELDS:
        values[BLOB_FIELDS[cls]] = blobs
    try:
        for name, rebuild in NESTED_FIELDS.get(cls, {}).items():
            if name in values:
                values[name] = rebuild(values[name])
        return cls(**values)
    except (TypeError, ValueError, KeyError) as error:
        raise StreamError(f"a malformed {cls.kind!r} event: {error}") from error


def is_sound(value: Any) -> bool:
    """Whether every field of an event, and of what it holds, has the type that it declares, and no number is absurd.

    `from_wire` does not look, since what a rank sends has been an event before. A file may hold anything.
    """
    return all(fits(getattr(value, name)) for name, fits in _field_checks(type(value)))  # type: ignore[arg-type]


@functools.cache  # readers of jobs decode thousands of bars
def _field_checks(cls: type[Any]) -> Sequence[tuple[str, Callable[[Any], bool]]]:
    """For each field of a dataclass, its name, and whether a value has its type."""
    return [(item.name, _check(str(item.type))) for item in fields(cls)]


def _check(declared: str) -> Callable[[Any], bool]:
    """Whether a value has a declared type."""
    if declared.endswith(" | None"):
        fits_some = _check(declared.removesuffix(" | None"))
        return lambda value: value is None or fits_some(value)
    if declared.startswith("Sequence["):
        fits_item = _check(declared.removeprefix("Sequence[")[:-1])
        return lambda value: isinstance(value, (list, tuple)) and all(map(fits_item, value))
    if declared.startswith("Mapping[str, "):
        fits_value = _check(declared.removeprefix("Mapping[str, ")[:-1])
        return lambda value: isinstance(value, dict) and all(map(fits_value, value.values()))
    if declared in ("int", "float"):
        types = (int,) if declared == "int" else (int, float)
        return lambda value: type(value) in types and -_LARGEST <= value <= _LARGEST  # NaN isn't, either
    if declared == "Blobs":
        return lambda value: True
    return lambda value: type(value).__name__ == declared and (not is_dataclass(value) or is_sound(value))


def _frames(values: Any) -> list[Frame]:
    return [Frame(**value) for value in values]


def _frame(value: Any) -> Frame | None:
    return None if value is None else Frame(**value)


def _list_of(cls: Callable[..., Any], **parts: Callable[[Any], Any]) -> Callable[[Any], list[Any]]:
    """Returns a function that rebuilds a list of `cls` instances; `parts` rebuild fields that are not plain JSON."""

    def rebuild(values: Any) -> list[Any]:
        return [
            cls(**{**value, **{name: make(value[name]) for name, make in parts.items() if name in value}})
            for value in values
        ]

    return rebuild


_live_arrays = _list_of(LiveArray, frame=_frame)


def _out_of_memory(value: Any) -> OutOfMemory | None:
    return None if value is None else OutOfMemory(**{**value, "arrays": _live_arrays(value.get("arrays", ()))})


NESTED_FIELDS: dict[type[Event], dict[str, Callable[[Any], Any]]] = {
    PhaseChanged: {"phase": Phase, "frame": _frame},
    Failed: {"chain": _list_of(Raised, frames=_frames), "out_of_memory": _out_of_memory},
    LargestArrays: {"arrays": _live_arrays},
    CollectivesRecorded: {"entries": _list_of(Collective)},
    Sampled: {"frames": _frames},
    StepTimes: {"lines": _list_of(HotLine)},
    Stacks: {"threads": _list_of(ThreadStack, frames=_frames)},
    Stalled: {"places": _list_of(Location, phase=Phase, frames=_frames)},
    RuleChanged: {"rule": lambda value: Rule(**value)},
}
"""The fields that are not plain JSON, and the functions that rebuild them from it."""
_PLAIN_FIELDS = {
    cls: frozenset(names)
    for cls, names in _HEADER_FIELDS.items()
    if cls not in NESTED_FIELDS and cls not in BLOB_FIELDS and not hasattr(cls, "__post_init__")
}
"""The events that are plain JSON as they are, and their fields: a fast path for bars and metrics, which are many."""


def _to_json(value: Any) -> Any:
    if is_dataclass(value):
        return {item.name: _to_json(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, (list, tuple)):
        return [_to_json(item) for item in value]
    if isinstance(value, enum.Enum):
        return value.value
    return value
