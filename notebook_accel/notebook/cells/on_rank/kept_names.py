"""Hands the variables of a rank over to the ranks that replace it. They are unpickled on ranks only."""

from __future__ import annotations

import enum
import pickle
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from notebook_accel.launch.wire import payload, pickling
from notebook_accel.launch.wire.pickling import CallPickler

_OF_RANKS = ("notebook_accel.train.", "torch.distributed.", "torch.nn.parallel.", "torch.utils.data.distributed")
"""The modules of classes whose objects depend on the number of ranks, or on their process group."""
_MOST_TEXT = 100
PREPARED = "prepared for the old ranks"


class Packed(NamedTuple):
    """The variables of a rank, as they travel."""

    names: list[str]
    left_out: dict[str, str]
    """The names of those that can't be kept, each with the reason."""
    parts: list[pickle.PickleBuffer]


def pack(names: Sequence[str]) -> tuple[Any, ...]:
    """Pickles variables of this rank together, so that what they share stays shared; returns a `Packed` as a tuple."""
    main = _main()
    kept, left_out = {name: main[name] for name in names if name in main}, dict[str, str]()
    pickler = _Pickler()
    try:
        pickler.dump(kept)
    except Exception:
        for name in list(kept):
            try:
                _Pickler().dump(kept[name])
            except Exception as error:
                del kept[name]
                left_out[name] = _reason(error)
        pickler = _Pickler()
        pickler.dump(kept)
    pickler.dump(dict(pickler.definitions))
    # Copies: a buffer of a memoryview that is part of a cycle, as a pickler's are, crashes Python 3.11 when the cycle
    # is collected.
    parts = [pickle.PickleBuffer(bytes(part)) for part in payload.pack_parts(pickler, None)]
    return tuple(Packed([*kept], left_out, parts))


def unpack(*parts: Any) -> list[str]:
    """Stores the variables of another rank in this one; returns their names, and those of what they need."""
    kept, definitions = payload.unpack_parts(parts)
    found = {**definitions, **kept}
    _main().update(found)
    pickling.add_worker_definitions(name for name, value in found.items() if isinstance(value, type) or callable(value))
    return [*found]


class _Pickler(CallPickler):
    """Refuses objects that would be wrong on another number of ranks."""

    def __init__(self) -> None:
        super().__init__()
        self._refused: dict[type, bool] = {}

    def reducer_override(self, obj: Any) -> Any:
        kind = type(obj)
        is_refused = self._refused.get(kind)
        if is_refused is None:
            is_refused = self._refused[kind] = _depends_on_ranks(kind)
        if is_refused:
            raise pickle.PicklingError(PREPARED)
        return super().reducer_override(obj)


def _depends_on_ranks(kind: type) -> bool:
    modules = [f"{each.__module__}." for each in kind.__mro__]
    return any(name.startswith(_OF_RANKS) for name in modules) and not issubclass(kind, (enum.Enum, type))


def _reason(error: Exception) -> str:
    if isinstance(error, pickle.PicklingError) and str(error).endswith(PREPARED):
        return PREPARED
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}…"


def _main() -> dict[str, Any]:
    return vars(sys.modules["__main__"])
