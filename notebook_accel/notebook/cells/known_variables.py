"""What one rank has of the notebook's variables: what was sent to it, and what it has bound itself."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from notebook_accel.notebook.cells import fingerprints
from notebook_accel.notebook.cells.fingerprints import Fingerprint

PREDEFINED = ("rank", "world_size", "device", "get_ipython", "display")
"""Names that every rank defines from the start."""
OWN = object()
"""Stands for a value that a rank has bound itself."""
_STALE = object()
"""Stands for a value that the notebook no longer has."""


class KnownVariables:
    """The variables of the notebook that one rank has."""

    def __init__(self, own: Iterable[str] = ()) -> None:
        self._values: dict[str, Any] = dict.fromkeys(own, OWN)
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
        return [name for name in self._values if self.has_bound(name) and name not in PREDEFINED]

    def has_bound(self, name: str) -> bool:
        """Whether the rank has bound the name itself, since it last got it from the notebook."""
        return self._values.get(name) is OWN or name in self._rebound

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
        return self._values.get(name, OWN) is value and name in self._fingerprints

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
            value = self._values[name] = self._values.pop(name, OWN)  # so that the latest come last
            if value is OWN or name in self._rebound:
                self.look_beside(name, namespace)
            else:
                self._rebound.add(name)
                self._beside[name] = value  # the notebook may have assigned another one since it was sent

    def look_beside(self, name: str, namespace: Mapping[str, Any]) -> bool:
        """Whether the notebook has assigned a name of the rank's own since this was last called for it."""
        before, now = self._beside.get(name, OWN), namespace.get(name, _STALE)
        if not self.has_bound(name):
            return False
        self._beside[name] = now
        return before is not OWN and before is not now

    def forget(self, namespace: Mapping[str, Any]) -> None:
        """Drops references to objects that the notebook no longer has, so that they can be freed."""
        for name, value in self._values.items():
            if value is not OWN and namespace.get(name) is not value:
                self._values[name] = _STALE
                self._fingerprints.pop(name, None)
        for name, value in self._beside.items():
            if namespace.get(name) is not value:
                self._beside[name] = _STALE
