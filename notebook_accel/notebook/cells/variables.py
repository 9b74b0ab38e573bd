"""Decides which of the notebook's variables are sent with a cell, or sent again, and pickles them."""

from __future__ import annotations

import re
import sys
import types
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from notebook_accel.errors import PayloadError
from notebook_accel.launch.wire import payload, unpicklable
from notebook_accel.launch.wire.mirrored import notebook_state
from notebook_accel.launch.wire.payload import Payload
from notebook_accel.launch.wire.pickling import CallPickler
from notebook_accel.notebook.cells import fingerprints, free_names
from notebook_accel.notebook.cells.cell_messages import Variable
from notebook_accel.notebook.cells.known_variables import OWN, PREDEFINED, KnownVariables

_NAME = re.compile(r"[^\W\d]\w*")


class Variables:
    """Tracks which of the notebook's variables have been sent to which ranks."""

    def __init__(self, namespace: dict[str, Any], is_hidden: Callable[[str, Any], bool], ranks: int) -> None:
        self._namespace = namespace
        self._is_hidden = is_hidden
        self.known = [KnownVariables(PREDEFINED) for _ in range(ranks)]
        self._needs: dict[str, set[str]] = {}
        """For each variable that was sent, the names that its functions read."""
        self._unclear: list[str] = []
        self._assigned: dict[str, list[int]] = {}
        self._reported: set[str] = set()

    def pack(
        self,
        call: tuple[Any, ...],
        names: Mapping[str, str],
        members: Collection[int],
        state: notebook_state.State | None = None,
        *,
        resend: bool = False,
        kept: Collection[str] = (),
    ) -> tuple[Payload, list[Variable]]:
        """Pickles a call, followed by each variable that a member lacks or has with an older content.

        Args:
            call: The function, its positional and its keyword arguments.
            names: The names that the call reads, each with the location where it is read.
            members: The ranks that run it.
            state: The working directory and paths for the ranks to adopt.
            resend: Whether to send also the variables that the ranks already have.
            kept: Names of which the ranks keep their own copies, even if the content has changed in the notebook.

        Returns:
            The payload, and the variables in it.

        Raises:
            PayloadError: One of the variables can't be pickled.
        """
        pickler = _Pickler()
        pickler.dump(call)
        sent: dict[str, Variable] = {}
        todo, seen, joined = dict(names), set[str](), set[str]()
        while todo:
            name = next(iter(todo))
            where = todo.pop(name)
            seen.add(name)
            value = self._namespace.get(name, OWN)
            if value is OWN or self._is_hidden(name, value):
                continue
            lacking = frozenset(members if resend else self._lacking(name, value, members))
            if not resend:
                self._look_beside(name, members)
            edited = frozenset[int]()
            if not resend and name not in kept:
                others = [rank for rank in members if self.known[rank].can_compare(name, value)]
                edited = frozenset(others) if name in joined else self._edited(name, value, others)
                # Sent alone, it would no longer share its tensors with the others, as an optimizer with its model.
                for other in self._sharing(name, edited) - joined:
                    joined.add(other)
                    todo.setdefault(other, where)
            if lacking | edited and name not in sent:
                changed = frozenset(rank for rank in lacking if resend or name in self.known[rank]) | edited
                fingerprint = fingerprints.take(value, complete=True)
                sent[name] = Variable(name, value, lacking | edited, changed, edited, fingerprint)
                self._dump(pickler, sent[name], where)
            for needed in self._needs.get(name, ()):
                if needed not in seen:
                    todo.setdefault(needed, where)
        pickler.dump(({}, frozenset(pickler.sent)))
        if pickler.device_bytes:
            names_of = ", ".join(pickler.on_device)
            warnings.warn(
                f"the notebook holds tensors on a device: {names_of}; {pickler.device_bytes / 1e6:.1f} MB were copied "
                "through the host. Each rank gets its own copy, on its own device.",
                stacklevel=7,
            )
        return payload.write(pickler, state), list(sent.values())

    def mark_sent(self, sent: Iterable[Variable], rank: int) -> None:
        """Records that a rank has received the variables that were sent to it."""
        for variable in sent:
            if rank in variable.receivers:
                self.known[rank].take(variable.name, variable.value, variable.fingerprint)

    def bind(self, names: Iterable[str], rank: int) -> None:
        """Records names that a rank has bound itself."""
        self.known[rank].bind(names, self._namespace)

    def pulled(self, name: str) -> None:
        """Records that the notebook has a value of the ranks, and has not assigned another one."""
        for known in self.known:
            known.look_beside(name, self._namespace)

    def keep(self, names: Iterable[str], members: Iterable[int]) -> set[str]:
        """Records that ranks keep their own variables, and those that share tensors with them; returns all."""
        kept: set[str] = set()
        for rank in members:
            kept |= self.known[rank].sharing(set(names))
        for rank in members:
            for name in kept:
                self.known[rank].keep(name)
        return kept

    def touch(self, source: str) -> None:
        """Records that a cell of the notebook has run, which may have changed what it names, or its functions read."""
        todo, touched = set(_NAME.findall(source)), set[str]()
        while todo:
            name = todo.pop()
            touched.add(name)
            value = self._namespace.get(name)
            if isinstance(value, types.FunctionType) and value.__globals__ is self._namespace:
                todo |= free_names.globals_of(value.__code__) - touched
        for known in self.known:
            known.touched |= {name for name in touched if name in known}

    def newly_unclear(self) -> list[str]:
        """The variables of which it can't be told whether they have changed; each of them once."""
        found = [name for name in dict.fromkeys(self._unclear) if name not in self._reported]
        self._reported.update(found)
        self._unclear.clear()
        return found

    def newly_assigned(self) -> dict[str, list[int]]:
        """The ranks' own names that the notebook has assigned, too, with these ranks; each of them once."""
        found, self._assigned = self._assigned, {}
        return found

    def forget(self) -> None:
        """Drops references to objects that the notebook no longer has."""
        for known in self.known:
            known.forget(self._namespace)

    def _lacking(self, name: str, value: Any, ranks: Iterable[int]) -> list[int]:
        """The ranks to which a value is sent because they have none, or another one, under its name.

        If a rank keeps a value of its own, those that have the notebook's older value keep that.
        """
        lacking = [rank for rank in ranks if not self.known[rank].has(name, value)]
        if any(known.has_bound(name) for known in self.known):
            return [rank for rank in lacking if name not in self.known[rank]]
        return lacking

    def _edited(self, name: str, value: Any, ranks: Iterable[int]) -> frozenset[int]:
        """The ranks that have been sent an older content of this value."""
        known = {rank: self.known[rank] for rank in ranks}
        now = None
        if any(each.fingerprint(name) for each in known.values()):
            is_touched = any(name in each.touched for each in known.values())
            now = fingerprints.take(value, complete=is_touched, seconds=fingerprints.BRIEFLY)
        found = {rank: each.is_edited(name, now) for rank, each in known.items()}
        if None in found.values():
            self._unclear.append(name)
        return frozenset(rank for rank, is_edited in found.items() if is_edited)

    def _look_beside(self, name: str, members: Iterable[int]) -> None:
        ranks = [rank for rank in members if self.known[rank].look_beside(name, self._namespace)]
        if ranks:
            self._assigned[name] = ranks

    def _sharing(self, name: str, ranks: Iterable[int]) -> set[str]:
        """The other variables that share arrays or tensors with this one on these ranks."""
        return set[str]().union(*(self.known[rank].sharing({name}) for rank in ranks)) - {name}

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

    def values_of(self, names: Iterable[str]) -> dict[str, Any]:
        self.wanted.update(names)
        return {}
