"""Decides which of the notebook's variables are sent with a cell, and pickles them."""

from __future__ import annotations

import sys
import types
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from notebook_accel.errors import PayloadError
from notebook_accel.launch.wire import notebook_state, payload, unpicklable
from notebook_accel.launch.wire.payload import Payload
from notebook_accel.launch.wire.pickling import CallPickler
from notebook_accel.notebook.cells.cell_messages import Variable

OWN = object()
"""Stands for a value that a rank has bound itself."""
_STALE = object()
"""Stands for a value that the notebook no longer has."""


class KnownVariables:
    """The variables of the notebook that one rank has."""

    def __init__(self, own: Iterable[str] = ()) -> None:
        self._values: dict[str, Any] = dict.fromkeys(own, OWN)

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def own(self) -> list[str]:
        """The names that the rank has bound itself."""
        return [name for name, value in self._values.items() if value is OWN and name not in PREDEFINED]

    def has(self, name: str, value: Any) -> bool:
        """Whether the rank has this value, or one that it has bound itself, so that nothing needs to be sent."""
        known = self._values.get(name, self)
        return known is OWN or known is value

    def take(self, name: str, value: Any) -> None:
        """Records that a value was sent."""
        self._values[name] = value

    def bind(self, names: Iterable[str]) -> None:
        """Records names that the rank has bound. A name sent before is sent again if the notebook rebinds it."""
        for name in names:
            self._values[name] = self._values.pop(name, OWN)  # so that the latest come last

    def forget(self, namespace: Mapping[str, Any]) -> None:
        """Drops references to objects that the notebook no longer has, so that they can be freed."""
        for name, value in self._values.items():
            if value is not OWN and namespace.get(name) is not value:
                self._values[name] = _STALE


class Variables:
    """Tracks which of the notebook's variables have been sent to which ranks."""

    def __init__(self, namespace: dict[str, Any], is_hidden: Callable[[str, Any], bool], ranks: int) -> None:
        self._namespace = namespace
        self._is_hidden = is_hidden
        self.known = [KnownVariables(PREDEFINED) for _ in range(ranks)]
        self._needs: dict[str, set[str]] = {}
        """For each variable that was sent, the names that its functions read."""

    def pack(
        self,
        call: tuple[Any, ...],
        names: Mapping[str, str],
        members: Collection[int],
        state: notebook_state.State | None = None,
        *,
        resend: bool = False,
    ) -> tuple[Payload, list[Variable]]:
        """Pickles a call, followed by each variable that a member lacks.

        Args:
            call: The function, its positional and its keyword arguments.
            names: The names that the call reads, each with the location where it is read.
            members: The ranks that run it.
            state: The working directory and paths for the ranks to adopt.
            resend: Whether to send also the variables that the ranks already have.

        Returns:
            The payload, and the variables in it.

        Raises:
            PayloadError: One of the variables can't be pickled.
        """
        pickler = _Pickler()
        pickler.dump(call)
        sent: list[Variable] = []
        todo, seen = dict(names), set[str]()
        while todo:
            name = next(iter(todo))
            where = todo.pop(name)
            seen.add(name)
            value = self._namespace.get(name, OWN)
            if value is OWN or self._is_hidden(name, value):
                continue
            lacking = frozenset(rank for rank in members if resend or not self.known[rank].has(name, value))
            if lacking:
                changed = frozenset(rank for rank in lacking if resend or name in self.known[rank])
                sent.append(Variable(name, value, lacking, changed))
                self._dump(pickler, sent[-1], where)
            for needed in self._needs.get(name, ()):
                if needed not in seen:
                    todo.setdefault(needed, where)
        pickler.dump(({}, frozenset(pickler.sent)))
        if pickler.device_bytes:
            names_of = ", ".join(pickler.on_device)
            warnings.warn(
                f"the notebook holds tensors on a device: {names_of}; {pickler.device_bytes / 1e6:.1f} MB were copied "
                "through the host. Each rank gets its own copy, on its own device.",
                stacklevel=6,
            )
        return payload.write(pickler, state), sent

    def mark_sent(self, sent: Iterable[Variable], rank: int) -> None:
        """Records that a rank has received the variables that were sent to it."""
        for variable in sent:
            if rank in variable.receivers:
                self.known[rank].take(variable.name, variable.value)

    def forget(self) -> None:
        """Drops references to objects that the notebook no longer has."""
        for known in self.known:
            known.forget(self._namespace)

    def _dump(self, pickler: _Pickler, variable: Variable, where: str) -> None:
        before = pickler.device_bytes
        pickler.wanted = set()
        try:
            pickler.dump(variable)
        except Exception as error:
            raise PayloadError(unpicklable.explain_unsendable(variable.name, variable.value, where, error)) from error
        if pickler.device_bytes > before:
            pickler.on_device.append(f"`{variable.name}`")
        self._needs[variable.name] = pickler.wanted - {variable.name}


PREDEFINED = ("rank", "world_size", "device", "get_ipython", "display")
"""Names that every rank defines from the start."""


class _Pickler(CallPickler):
    """Pickles the notebook's functions without their globals, which are sent by name to the ranks that lack them."""

    def __init__(self) -> None:
        super().__init__()
        self.wanted: set[str] = set()
        self.on_device: list[str] = []

    def reducer_override(self, obj: Any) -> Any:
        reduced = super().reducer_override(obj)
        if isinstance(obj, (types.FunctionType, type)) and obj.__module__ == "__main__":
            outermost = obj.__qualname__.partition(".")[0]
            if outermost in self.definitions:
                self.wanted.add(outermost)
        of_main = isinstance(obj, types.FunctionType) and obj.__globals__ is vars(sys.modules["__main__"])
        if of_main and isinstance(reduced, tuple):
            attributes, slots = reduced[2]
            self.wanted |= slots["__globals__"].keys()
            return (*reduced[:2], (attributes, {**slots, "__globals__": {}}), *reduced[3:])
        return reduced
