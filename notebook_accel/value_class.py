"""Dataclasses that take a fifth of the time to define if they are frozen.

The first cell of a notebook defines a hundred. For each, the standard library compiles six functions; here, one is
compiled, and the others are closures. The classes are alike in everything else, but derive from each other only.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    from collections.abc import Callable, Sequence
    from dataclasses import MISSING, Field, FrozenInstanceError
    from operator import attrgetter
    from reprlib import recursive_repr

    def dataclass(cls: type | None = None, /, *, frozen: bool = False, repr: bool = True, **options: bool):
        """As `dataclasses.dataclass`."""
        if not frozen:
            return dataclasses.dataclass(cls, repr=repr, **options)

        def define(cls: type) -> type:
            explicit = set(vars(cls))
            if vars(cls).get("__hash__", MISSING) is None and "__eq__" in explicit:
                explicit.remove("__hash__")  # Python has added it
            cls = dataclasses.dataclass(init=False, repr=False, eq=False, **options)(cls)
            fields = dataclasses.fields(cls)
            methods = [_init(cls, fields), *_comparison(fields), *_refusals(cls, fields)]
            if repr:
                methods.append(_repr(fields))
            for method in methods:
                if method.__name__ not in explicit:
                    method.__qualname__ = f"{cls.__qualname__}.{method.__name__}"
                    setattr(cls, method.__name__, method)
            return cls

        return define if cls is None else define(cls)

    def _init(cls: type, fields: Sequence[Field]) -> Callable:
        names = {"__name__": cls.__module__, "_set": object.__setattr__, "_MISSING": MISSING}
        body, positional, by_name = [], [], []
        for each in fields:
            name, value = each.name, each.name
            if each.default_factory is not MISSING:
                names[f"_make_{name}"] = each.default_factory
                value = f"_make_{name}() if {name} is _MISSING else {name}" if each.init else f"_make_{name}()"
            elif not each.init:
                continue  # the class has the default
            if each.init:
                default = each.default if each.default_factory is MISSING else MISSING
                has_default = default is not MISSING or each.default_factory is not MISSING
                names[f"_default_{name}"] = default
                (by_name if each.kw_only else positional).append(f"{name}=_default_{name}" if has_default else name)
            body.append(f" _set(self, {name!r}, {value})")
        if hasattr(cls, "__post_init__"):
            body.append(" self.__post_init__()")
        parameters = ", ".join(["self", *positional, *(["*", *by_name] if by_name else [])])
        exec("\n".join([f"def __init__({parameters}):", *(body or [" pass"])]), names)
        init = names["__init__"]
        init.__annotations__ = {**{each.name: each.type for each in fields if each.init}, "return": None}
        return init

    def _comparison(fields: Sequence[Field]) -> Sequence[Callable]:
        compared = [each.name for each in fields if each.compare]
        get = attrgetter(*compared) if compared else lambda _: ()

        def __eq__(self: object, other: object) -> bool:
            return get(self) == get(other) if other.__class__ is self.__class__ else NotImplemented

        def __hash__(self: object) -> int:
            return hash(get(self))

        return __eq__, __hash__

    def _repr(fields: Sequence[Field]) -> Callable:
        names = [each.name for each in fields if each.repr]

        def __repr__(self: object) -> str:
            return f"{self.__class__.__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

        return recursive_repr()(__repr__)

    def _refusals(cls: type, fields: Sequence[Field]) -> Sequence[Callable]:
        names = {each.name for each in fields}

        def __setattr__(self: object, name: str, value: object) -> None:
            if type(self) is cls or name in names:
                raise FrozenInstanceError(f"cannot assign to field {name!r}")
            super(cls, self).__setattr__(name, value)

        def __delattr__(self: object, name: str) -> None:
            if type(self) is cls or name in names:
                raise FrozenInstanceError(f"cannot delete field {name!r}")
            super(cls, self).__delattr__(name)

        return __setattr__, __delattr__
