"""Keeps the ranks' copies of the notebook's variables up to date: what each rank has of them, and what it is sent."""

from __future__ import annotations

import re
import sys
import types
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from notebook_accel.errors import ConfigurationError, PayloadError
from notebook_accel.launch.driver import changed_modules
from notebook_accel.launch.show import console
from notebook_accel.launch.wire import payload, unpicklable
from notebook_accel.launch.wire.mirrored import notebook_state
from notebook_accel.launch.wire.payload import Payload
from notebook_accel.launch.wire.pickling import CallPickler
from notebook_accel.notebook.cells import fingerprints, free_names, notices
from notebook_accel.notebook.cells.cell_messages import Variable
from notebook_accel.notebook.cells.fingerprints import Fingerprint
from notebook_accel.notebook.cells.on_rank import worker

_PREDEFINED = ("rank", "world_size", "device", "get_ipython", "display")
"""Names that every rank defines from the start."""
_OWN = object()
"""Stands for a value that a rank has bound itself."""
_STALE = object()
"""Stands for a value that the notebook no longer has."""
_NAME = re.compile(r"[^\W\d]\w*")


class VariableSync:
    """Keeps the ranks' copies of the notebook's variables up to date, except where a rank has changed its own.

    What the ranks have is written here alone: `before` a cell runs on them, `after` it has run, and when the
    `kernel_ran` a cell; `push` and `pull` are what the user asks for.

    Args:
        namespace: The notebook's variables.
        is_hidden: Whether a variable was defined by IPython rather than by the user.
        members: All ranks of the group.
        call: Runs a pickled call on ranks; takes also their numbers and the call's name, and returns their values.
        state: The working directory and paths that the ranks have adopted.
    """

    def __init__(
        self,
        namespace: dict[str, Any],
        is_hidden: Callable[[str, Any], bool],
        members: Sequence[int],
        call: Callable[[Payload, Sequence[int], str], list[Any]],
        state: notebook_state.State,
    ) -> None:
        self._namespace = namespace
        self._is_hidden = is_hidden
        self._members = members
        self._call = call
        self._state = state
        self._known = [_Known(_PREDEFINED) for _ in members]
        self._needs: dict[str, set[str]] = {}
        """For each variable that was sent, the names that its functions read."""
        self._unclear: dict[str, bool] = {}
        """The variables of which it can't be told whether they have changed, and whether the user knows."""
        self._assigned: dict[str, list[int]] = {}
        """The ranks' own names that the notebook has assigned, too, with these ranks, until the user knows."""

    def own(self, rank: int) -> list[str]:
        """The names that a rank has bound itself, the latest last."""
        return self._known[rank].own()

    def has_bound(self, name: str) -> bool:
        """Whether a rank has bound this name itself."""
        return any(known.has_bound(name) for known in self._known)

    # What changes it

    def before(
        self, call: tuple[Any, ...], names: Mapping[str, str], members: Collection[int]
    ) -> tuple[Payload, list[Variable]]:
        """Pickles a call with the variables that it reads, where the ranks lack them or have an older content.

        A variable that a rank has changed itself is not replaced, and a notice says so.

        Args:
            call: The function, its positional and its keyword arguments.
            names: The names that the call reads, each with the location where it is read.
            members: The ranks that run it.

        Returns:
            The payload, and the variables in it, for `after`.

        Raises:
            PayloadError: One of the variables can't be sent.
            KeyboardInterrupt: It was interrupted.
        """
        state = self._changed_state()
        packed, sent = self._pack(call, names, members, state)
        try:
            changed_by = self._changed_by_ranks(sent)
        except BaseException:
            packed.close()
            raise
        if changed_by:
            packed.close()
            console.current.notice(notices.describe_kept(changed_by))
            packed, sent = self._pack(call, names, members, state, kept=self._keep(changed_by, members))
        self._notify(packed)
        return packed, sent

    def after(
        self, bound: Mapping[int, Iterable[str]], sent: Iterable[Variable] = (), receivers: Iterable[int] = ()
    ) -> None:
        """Records what ranks have after a call.

        Args:
            bound: The names that each rank has bound itself.
            sent: The variables that were sent with the call.
            receivers: The ranks that have loaded them.
        """
        for rank in receivers:
            for variable in sent:
                if rank in variable.receivers:
                    self._known[rank].take(variable.name, variable.value, variable.fingerprint)
        for rank, names in bound.items():
            self._known[rank].bind(names, self._namespace)

    def kernel_ran(self, source: str) -> None:
        """Drops references to objects that the notebook no longer has, and notes what a cell may have changed.

        Args:
            source: The cell, which may have changed what it names, or its functions read. Empty if it ran on the ranks.
        """
        todo, touched = set(_NAME.findall(source)), set[str]()
        while todo:
            name = todo.pop()
            touched.add(name)
            value = self._namespace.get(name)
            if isinstance(value, types.FunctionType) and value.__globals__ is self._namespace:
                todo |= free_names.globals_of(value.__code__) - touched
        for known in self._known:
            known.forget(self._namespace)
            known.touched |= {name for name in touched if name in known}

    def push(self, names: Mapping[str, str]) -> None:
        """Sends variables of the notebook to all ranks, replacing the ranks' values.

        Args:
            names: Their names, each with the location where it was asked for.

        Raises:
            PayloadError: One of them can't be sent.
        """
        packed, sent = self._pack((worker.receive, (), {}), names, self._members, resend=True)
        self._call(packed, self._members, "push")
        self.after({}, sent, self._members)

    def pull(self, names: Sequence[str], members: Sequence[int]) -> None:
        """Copies variables from ranks to the notebook, from several as a list.

        Raises:
            ConfigurationError: A rank doesn't have one of them.
        """
        values = self._call(pack_call((worker.pull, (list(names),), {})), members, "pull")
        for name in names:
            for rank, sent in zip(members, values, strict=True):
                if name not in sent:
                    raise ConfigurationError(f"%accelerate pull: rank {rank} has no variable {name}")
        for name in names:
            pulled = [sent[name] for sent in values]
            self._namespace[name] = pulled[0] if len(members) == 1 else pulled
            for known in self._known:
                known.look_beside(name, self._namespace)  # the notebook has not assigned another value

    # Before a call

    def _pack(
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
            call: As in `before`, as are `names` and `members`.
            names: The names.
            members: The ranks.
            state: The working directory and paths for the ranks to adopt.
            resend: Whether to send also the variables that the ranks already have.
            kept: Names of which the ranks keep their own copies, even if the content has changed in the notebook.
        """
        pickler = _Pickler()
        pickler.dump(call)
        sent: dict[str, Variable] = {}
        todo, seen, joined = dict(names), set[str](), set[str]()
        while todo:
            name = next(iter(todo))
            where = todo.pop(name)
            seen.add(name)
            value = self._namespace.get(name, _OWN)
            if value is _OWN or self._is_hidden(name, value):
                continue
            lacking = frozenset(members if resend else self._lacking(name, value, members))
            if not resend:
                self._look_beside(name, members)
            edited = frozenset[int]()
            if not resend and name not in kept:
                others = [rank for rank in members if self._known[rank].can_compare(name, value)]
                edited = frozenset(others) if name in joined else self._edited(name, value, others)
                # Sent alone, it would no longer share its tensors with the others, as an optimizer with its model.
                for other in self._sharing(name, edited) - joined:
                    joined.add(other)
                    todo.setdefault(other, where)
            if lacking | edited and name not in sent:
                changed = frozenset(rank for rank in lacking if resend or name in self._known[rank]) | edited
                fingerprint = fingerprints.take(value, complete=True)
                sent[name] = Variable(name, value, lacking | edited, changed, edited, fingerprint)
                self._dump(pickler, sent[name], where)
            for needed in self._needs.get(name, ()):
                if needed not in seen:
                    todo.setdefault(needed, where)
        if pickler.device_bytes:
            names_of = ", ".join(pickler.on_device)
            warnings.warn(
                f"the notebook holds tensors on a device: {names_of}; {pickler.device_bytes / 1e6:.1f} MB were copied "
                "through the host. Each rank gets its own copy, on its own device.",
                stacklevel=7,
            )
        return pickler.written(state), list(sent.values())

    def _keep(self, names: Iterable[str], members: Iterable[int]) -> set[str]:
        """Records that ranks keep their own variables, and those that share tensors with them; returns all."""
        kept: set[str] = set()
        for rank in members:
            kept |= self._known[rank].sharing(set(names))
        for rank in members:
            for name in kept:
                self._known[rank].keep(name)
        return kept

    def _notify(self, packed: Payload) -> None:
        """Says what the ranks don't get as the notebook has it, each of them once."""
        if changed := changed_modules.notice(packed, "a cell on the ranks"):
            console.current.notice(changed)
        assigned, self._assigned = self._assigned, {}
        if assigned:
            console.current.notice(notices.describe_kept(assigned, "assigned"))
        if unclear := [name for name, is_known in self._unclear.items() if not is_known]:
            self._unclear.update(dict.fromkeys(unclear, True))
            console.current.notice(notices.describe_unclear(unclear))

    def _lacking(self, name: str, value: Any, ranks: Iterable[int]) -> list[int]:
        """The ranks to which a value is sent because they have none, or another one, under its name.

        If a rank keeps a value of its own, those that have the notebook's older value keep that.
        """
        lacking = [rank for rank in ranks if not self._known[rank].has(name, value)]
        if self.has_bound(name):
            return [rank for rank in lacking if name not in self._known[rank]]
        return lacking

    def _edited(self, name: str, value: Any, ranks: Iterable[int]) -> frozenset[int]:
        """The ranks that have been sent an older content of this value."""
        known = {rank: self._known[rank] for rank in ranks}
        now = None
        if any(each.fingerprint(name) for each in known.values()):
            is_touched = any(name in each.touched for each in known.values())
            now = fingerprints.take(value, complete=is_touched, seconds=fingerprints.BRIEFLY)
        found = {rank: each.is_edited(name, now) for rank, each in known.items()}
        if None in found.values():
            self._unclear.setdefault(name, False)
        return frozenset(rank for rank, is_edited in found.items() if is_edited)

    def _look_beside(self, name: str, members: Iterable[int]) -> None:
        ranks = [rank for rank in members if self._known[rank].look_beside(name, self._namespace)]
        if ranks:
            self._assigned[name] = ranks

    def _sharing(self, name: str, ranks: Iterable[int]) -> set[str]:
        """The other variables that share arrays or tensors with this one on these ranks."""
        return set[str]().union(*(self._known[rank].sharing({name}) for rank in ranks)) - {name}

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

    def _changed_by_ranks(self, sent: Sequence[Variable]) -> dict[str, list[int]]:
        """The variables to send again that ranks have changed themselves, each with these ranks."""
        names = [variable.name for variable in sent if variable.edited]
        if not names:
            return {}
        holders = sorted(set[int]().union(*(variable.edited for variable in sent)))
        packed = pack_call((worker.changed, (names,), {}))
        found = self._call(packed, holders, "changed")
        changed_by: dict[str, list[int]] = {}
        for rank, changed in zip(holders, found, strict=True):
            for name in changed:
                changed_by.setdefault(name, []).append(rank)
        return changed_by

    def _changed_state(self) -> notebook_state.State | None:
        """The notebook's working directory, `sys.path` and `sys.argv`; `None` if unchanged since the last cell."""
        now, before = notebook_state.capture_paths(), self._state
        if (now.cwd, now.path, now.argv) == (before.cwd, before.path, before.argv):
            return None
        self._state = now
        return now


def pack_call(call: tuple[Any, ...], state: notebook_state.State | None = None) -> Payload:
    """Pickles a call of this package that reads no variables; `state` is for the ranks to adopt."""
    pickler = _Pickler()
    pickler.dump(call)
    return pickler.written(state)


class _Known:
    """The variables of the notebook that one rank has."""

    def __init__(self, own: Iterable[str] = ()) -> None:
        self._values: dict[str, Any] = dict.fromkeys(own, _OWN)
        self._rebound: set[str] = set()
        """The names that the rank got from the notebook, and has bound itself since."""
        self._beside: dict[str, Any] = {}
        """What the notebook had under each name that the rank has bound itself, when it was last looked at."""
        self._fingerprints: dict[str, Fingerprint | None] = {}
        """What each variable held when it was sent; `None` if that can't be told."""
        self.touched: set[str] = set()
        """The names that the notebook's own cells have used since they were sent, or last compared."""

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def own(self) -> list[str]:
        """The names that the rank has bound itself."""
        return [name for name in self._values if self.has_bound(name) and name not in _PREDEFINED]

    def has_bound(self, name: str) -> bool:
        """Whether the rank has bound the name itself, since it last got it from the notebook."""
        return self._values.get(name) is _OWN or name in self._rebound

    def has(self, name: str, value: Any) -> bool:
        """Whether the rank has this value, or one that it has bound itself, so that nothing needs to be sent."""
        return self.has_bound(name) or self._values.get(name, self) is value

    def take(self, name: str, value: Any, fingerprint: Fingerprint | None) -> None:
        """Records that a value was sent."""
        self._values[name] = value
        self._rebound.discard(name)
        self._fingerprints[name] = fingerprint
        self.touched.discard(name)

    def keep(self, name: str) -> None:
        """Records that the rank keeps its own copy, so that it is not compared until it is sent again."""
        self._fingerprints.pop(name, None)

    def can_compare(self, name: str, value: Any) -> bool:
        """Whether this object was sent, and the rank is not known to have changed its copy."""
        return self._values.get(name, _OWN) is value and name in self._fingerprints

    def fingerprint(self, name: str) -> Fingerprint | None:
        """What a variable held when it was sent; `None` if that can't be told."""
        return self._fingerprints[name]

    def is_edited(self, name: str, now: Fingerprint | None) -> bool | None:
        """Whether a variable's content has changed since it was sent; `None` if it may have and that can't be told."""
        is_touched = name in self.touched
        found = fingerprints.differ(self._fingerprints[name], now, complete=is_touched)
        if found is None:
            self._fingerprints[name] = None  # it is not tried again, as it may have taken long
            return None if is_touched else False
        if not found:
            self.touched.discard(name)
        return found

    def sharing(self, names: Collection[str]) -> set[str]:
        """These names, and those of other variables that hold some of the same arrays or tensors."""
        memory = {name: found.memory for name, found in self._fingerprints.items() if found is not None}
        group, reached = set(names), set[int]().union(*(memory.get(name, ()) for name in names))
        while joined := {name for name, held in memory.items() if name not in group and held & reached}:
            group |= joined
            reached = reached.union(*(memory[name] for name in joined))
        return group

    def bind(self, names: Iterable[str], namespace: Mapping[str, Any]) -> None:
        """Records names that the rank has bound."""
        for name in names:
            value = self._values[name] = self._values.pop(name, _OWN)  # so that the latest come last
            if value is _OWN or name in self._rebound:
                self.look_beside(name, namespace)
            else:
                self._rebound.add(name)
                self._beside[name] = value  # the notebook may have assigned another one since it was sent

    def look_beside(self, name: str, namespace: Mapping[str, Any]) -> bool:
        """Whether the notebook has assigned a name of the rank's own since this was last called for it."""
        before, now = self._beside.get(name, _OWN), namespace.get(name, _STALE)
        if not self.has_bound(name):
            return False
        self._beside[name] = now
        return before is not _OWN and before is not now

    def forget(self, namespace: Mapping[str, Any]) -> None:
        """Drops references to objects that the notebook no longer has, so that they can be freed."""
        for name, value in self._values.items():
            if value is not _OWN and namespace.get(name) is not value:
                self._values[name] = _STALE
                self._fingerprints.pop(name, None)
        for name, value in self._beside.items():
            if namespace.get(name) is not value:
                self._beside[name] = _STALE


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

    def written(self, state: notebook_state.State | None) -> Payload:
        """Ends the payload."""
        self.dump(({}, frozenset(self.sent)))
        return payload.write(self, state)
