"""Takes apart, for the picklers, definitions that cloudpickle would rebuild wrongly, and puts them together.

cloudpickle creates an empty class by calling its metaclass, and sets the attributes afterwards. What only a definition
does is then missing or is done twice: slots, the members of an enum, what metaclasses and `__init_subclass__` do. Here,
a class is created without that, since what has come of it is among its attributes.
"""

from __future__ import annotations

import abc
import contextlib
import copyreg
import dataclasses
import enum
import functools
import sys
import threading
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from cloudpickle import cloudpickle

Reduced = tuple[Any, ...]
"""What a `reducer_override` returns."""

_dispatch: Any = functools.singledispatch(lambda value: value)
_OF_CONSTANTS = (type(None), type(Ellipsis), type(NotImplemented))
_IN_PYTHON = (types.FunctionType, staticmethod)
_IS_HEAP_TYPE = 1 << 9
"""The flag of classes that are defined in Python (`Py_TPFLAGS_HEAPTYPE`)."""
_OF_PYTHON = ("builtins", "abc", "enum", "typing")
"""The modules of metaclasses whose effects are among the attributes of their classes."""
_MADE_AGAIN = frozenset(
    {"__dict__", "__weakref__", "__slots__", "__slotnames__", "__annotate_func__", "__annotations_cache__"}
)
"""Attributes of a class that Python makes, or that are passed to it."""
_OF_ABC = frozenset({"_abc_impl", "_abc_registry", "_abc_cache", "_abc_negative_cache", "_abc_negative_cache_version"})
_OF_ENUM = frozenset(
    {"_member_names_", "_member_map_", "_value2member_map_", "_member_type_", "_flag_mask_", "_singles_mask_"}
    | {"_all_bits_", "_hashable_values_", "_unhashable_values_", "_unhashable_values_map_"}
)
"""Attributes of an enum that its metaclass makes from the members."""


def reduce(obj: Any) -> Reduced | None:
    """How to rebuild an object, if cloudpickle doesn't know that; `None` if it does."""
    if isinstance(obj, type):
        return None if cloudpickle._should_pickle_by_reference(obj) else _reduce_class(obj)
    rule = _RULES.get(type(obj))
    if rule is not None:
        return rule(obj)
    if isinstance(obj, (property, classmethod, staticmethod, functools.cached_property)):  # of a class of the user's
        return _RULES[next(each for each in type(obj).__mro__ if each in _RULES)](obj)
    return _reduce_exception(obj) if issubclass(type(obj), BaseException) else None


# Classes


def is_by_value(cls: type) -> bool:
    """Whether a class is sent by value."""
    return not cloudpickle._should_pickle_by_reference(cls)


def _reduce_class(cls: type) -> Reduced | None:
    if cls in cloudpickle._BUILTIN_TYPE_NAMES or cls in _OF_CONSTANTS:
        return None
    if issubclass(cls, enum.Enum):
        return _reduce_enum(cls)
    meta = type(cls)
    if _is_of_library(meta):
        return _reduce_through_metaclass(cls)
    namespace = {"__module__": cls.__module__, "__qualname__": cls.__qualname__}
    namespace |= {name: vars(cls)[name] for name in ("__slots__", "__orig_bases__") if name in vars(cls)}
    if isinstance(vars(cls).get("__dict__"), property):
        namespace["__dict__"] = vars(cls)["__dict__"]
    own = tuple(each for each in cls.__mro__[1:] if "__init_subclass__" in vars(each) and is_by_value(each))
    made = (meta, cls.__name__, cls.__bases__, namespace, own, _tracker(cls))
    return _make_class, made, _class_state(cls), None, None, fill_class


def _is_of_library(meta: type) -> bool:
    """Whether a metaclass does something of its own that comes from a package, and so may be anything."""
    found = [each for each in meta.__mro__ if not is_by_value(each) and each.__module__ not in _OF_PYTHON]
    return any(isinstance(vars(each).get(name), _IN_PYTHON) for each in found for name in ("__new__", "__init__"))


def _reduce_through_metaclass(cls: type) -> Reduced:
    make, made, (attributes, _), *_ = cloudpickle._dynamic_class_reduce(cls)
    registered = attributes.pop("_abc_impl", ())
    return make, made, {"attributes": attributes, "registered": registered, "set": setattr}, None, None, fill_class


def _class_state(cls: type) -> dict[str, Any]:
    """What `fill_class` takes."""
    left_out = _MADE_AGAIN | (_OF_ABC if isinstance(cls, abc.ABCMeta) else frozenset())
    attributes = {name: value for name, value in vars(cls).items() if name not in left_out and not _is_slot(cls, value)}
    state: dict[str, Any] = {"attributes": attributes}
    if isinstance(cls, abc.ABCMeta):
        registered = (reference() for reference in abc._get_dump(cls)[0])  # type: ignore[attr-defined]
        state["registered"] = [each for each in registered if each is not None]
    return state


def _make_class(
    meta: type, name: str, bases: tuple[type, ...], namespace: dict[str, Any], own: tuple[type, ...], tracker: str
) -> type:
    """An empty class, or the one that has been made from the same definition before.

    Args:
        meta: Its metaclass.
        name: Its name.
        bases: Its bases.
        namespace: The attributes that it needs from the start.
        own: The classes that it derives from and whose `__init_subclass__` is not called again.
        tracker: The ID of the definition.
    """
    known = cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID.get(tracker)
    if known is not None:
        return typing.cast(type, known)
    try:
        with _without_hooks(own):
            made = _create(meta, name, bases, namespace)
    except TypeError:  # that of a package takes arguments
        with _without_hooks({each for base in bases for each in base.__mro__[:-1]}):
            made = _create(meta, name, bases, namespace)
    return typing.cast(type, cloudpickle._lookup_class_or_track(tracker, made))


_hooks = threading.RLock()


@contextlib.contextmanager
def _without_hooks(classes: Iterable[type]) -> Iterator[None]:
    """Takes `__init_subclass__` away from these classes, while another class is created."""
    with _hooks:
        taken = {each: vars(each)["__init_subclass__"] for each in classes if "__init_subclass__" in vars(each)}
        try:
            for each in taken:
                type.__delattr__(each, "__init_subclass__")
            yield
        finally:
            for each, hook in taken.items():
                type.__setattr__(each, "__init_subclass__", hook)


def _create(meta: type, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> type:
    """Creates a class without what its metaclass does in Python."""
    if issubclass(meta, abc.ABCMeta):
        return abc.ABCMeta.__new__(meta, name, bases, namespace)
    new = next(
        vars(each)["__new__"]
        for each in meta.__mro__
        if isinstance(vars(each).get("__new__"), types.BuiltinFunctionType)
    )
    return typing.cast(type, new(meta, name, bases, namespace))


def _tracker(definition: Any) -> str:
    """An ID of a definition, by which the other process tells whether it has made the definition before."""
    return str(cloudpickle._get_or_create_tracker_id(definition))


def fill_class(cls: type, state: Mapping[str, Any]) -> type:
    """Gives a class that was created from a pickle its attributes, also if it has been filled before."""
    attributes, set_on = state["attributes"], state.get("set", type.__setattr__)
    for name, value in attributes.items():
        set_on(cls, name, value)
    if "__firstlineno__" in attributes:  # which Python 3.13 removes when the module is set
        type.__setattr__(cls, "__firstlineno__", attributes["__firstlineno__"])
    for each in state.get("registered", ()):
        cls.register(each)  # type: ignore[attr-defined]
    for name, values in state.get("members", {}).items():
        member = cls.__members__[name]  # type: ignore[attr-defined]
        for key, value in values.items():
            object.__setattr__(member, key, value)
    main = vars(sys.modules["__main__"])
    for name, value in state.get("named", {}).items():
        main.setdefault(name, value)
    return cls


def fill_new_class(cls: type, state: Mapping[str, Any]) -> type:
    """As `fill_class`; but a class that is known here already keeps its contents."""
    return cls if state["attributes"].keys() <= vars(cls).keys() else fill_class(cls, state)


# Enums


class _Member:
    """A member of an enum, as its class is created from it."""

    def __init__(self, native: type, arguments: tuple[Any, ...], value: Any) -> None:
        self.native = native
        self.arguments = arguments
        self.value = value


def _reduce_enum(cls: type[enum.Enum]) -> Reduced:
    meta = type(cls)
    natives = (each for each in cls.__mro__ if not is_by_value(each) and not issubclass(each, enum.Enum))
    native = next(each for each in natives if each.__module__ != "enum")
    members, attributes = {}, {}
    for name, member in cls.__members__.items():
        members[name] = _Member(native, _arguments(native, member), member._value_)
        own = {key: value for key, value in vars(member).items() if key not in _OF_MEMBER}
        own |= {key: getattr(member, key) for key in _slots(cls) if hasattr(member, key)}
        if own and member.name == name:
            attributes[name] = own
    state = _class_state(cls)
    state["attributes"] = {
        name: value
        for name, value in state["attributes"].items()
        if name not in _OF_ENUM and name not in members and not _is_inherited(cls, name, value)
    }
    state["members"] = attributes
    namespace = {"__module__": cls.__module__, "__qualname__": cls.__qualname__}
    made = (meta, cls.__name__, cls.__bases__, namespace, members, sorted(vars(cls)), _tracker(cls))
    return _make_enum, made, state, None, None, fill_class


_OF_MEMBER = ("_value_", "_name_", "__objclass__", "_sort_order_")


def _is_inherited(cls: type, name: str, value: Any) -> bool:
    """Whether the metaclass has copied an attribute from a class that is sent by name."""
    return any(vars(base).get(name) is value for base in cls.__mro__[1:] if not is_by_value(base))


def _is_slot(cls: type, value: Any) -> bool:
    return isinstance(value, types.MemberDescriptorType) and value.__objclass__ is cls


def _slots(cls: type) -> Iterator[str]:
    """The names of the slots of an object's classes, among those that are sent by value."""
    for base in filter(is_by_value, cls.__mro__):
        yield from (name for name, value in vars(base).items() if _is_slot(base, value))


def _arguments(native: type, member: Any) -> tuple[Any, ...]:
    """The arguments for `native.__new__` that make a copy of what a member holds of that class."""
    if hasattr(native, "__getnewargs__"):
        found: tuple[Any, ...] = native.__getnewargs__(member)
        return found
    reduce_native: Any = native.__reduce__
    return () if reduce_native is object.__reduce__ else tuple(reduce_native(member)[1])


def _make_enum(
    meta: type,
    name: str,
    bases: tuple[type, ...],
    namespace: dict[str, Any],
    members: dict[str, _Member],
    names: list[str],
    tracker: str,
) -> type:
    """An enum with its members, which otherwise is empty."""
    known = cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID.get(tracker)
    if known is not None:
        return typing.cast(type, known)
    of_python: Any = enum.EnumMeta
    body = of_python.__prepare__(name, bases)
    for key, value in {"__new__": _new_member, "__init__": _init_member, **namespace, **members}.items():
        body[key] = value
    made: type = of_python.__new__(meta, name, bases, body)
    for key in ("__new__", "__init__", "__reduce_ex__", "__repr__", "__str__", "__format__"):
        if key in vars(made) and key not in names:
            type.__delattr__(made, key)
    # The metaclass changes it if it takes the members for unpicklable.
    type.__setattr__(made, "__module__", namespace["__module__"])
    return typing.cast(type, cloudpickle._lookup_class_or_track(tracker, made))


def _new_member(cls: type, *given: Any) -> Any:
    member = _member_of(given)
    made = member.native.__new__(cls, *member.arguments)
    object.__setattr__(made, "_value_", member.value)
    return made


def _init_member(made: Any, *given: Any) -> None:
    """Does nothing: what `__init__` has done in the notebook is among the attributes."""


def _member_of(given: Any) -> _Member:
    while not isinstance(given, _Member):
        (given,) = given  # of an enum of tuples, whose metaclass wraps it
    return given


# Functions and descriptors


def reduce_dispatch(function: types.FunctionType) -> Reduced | None:
    """How to rebuild a function of `functools.singledispatch`; `None` for any other."""
    if function.__code__ is not _dispatch.__code__:
        return None
    found: Any = function
    own = {name: value for name, value in vars(found).items() if name not in _OF_DISPATCH}
    return _make_dispatch, (function.__name__,), (list(found.registry.items()), own), None, None, _fill_dispatch


_OF_DISPATCH = ("register", "dispatch", "registry", "_clear_cache", "__wrapped__")


def _make_dispatch(name: str) -> Any:
    def undefined(*_: object) -> None:
        raise TypeError(f"{name} is not complete")

    undefined.__name__ = name
    return functools.singledispatch(undefined)


def _fill_dispatch(function: Any, state: tuple[list[tuple[type, Any]], dict[str, Any]]) -> Any:
    registry, own = state
    for kind, implementation in registry:
        function.register(kind, implementation)
        if kind is object:
            functools.update_wrapper(function, implementation)
    vars(function).update(own)
    return function


def _reduce_property(found: property) -> Reduced:
    made = (type(found), property, (found.fget, found.fset, found.fdel, found.__doc__))
    return _make_descriptor, made, _attributes(found, property)


def _reduce_method(found: classmethod[Any, Any, Any] | staticmethod[Any, Any]) -> Reduced:
    base = classmethod if isinstance(found, classmethod) else staticmethod
    return _make_descriptor, (type(found), base, (found.__func__,)), _attributes(found, base)


def _reduce_cached_property(found: functools.cached_property[Any]) -> Reduced:
    made = (type(found), functools.cached_property, (found.func,))
    return _make_descriptor, made, {name: value for name, value in vars(found).items() if name not in ("func", "lock")}


def _attributes(found: Any, base: type) -> dict[str, Any] | None:
    """The attributes that a class of the user's may have added to a descriptor."""
    return None if type(found) is base else dict(getattr(found, "__dict__", {})) or None


def _make_descriptor(cls: type, base: Any, arguments: tuple[Any, ...]) -> Any:
    """A descriptor of a class that may take other arguments than Python's own class that it derives from."""
    made = base.__new__(cls)
    base.__init__(made, *arguments)
    return made


def _reduce_dispatch_method(found: functools.singledispatchmethod[Any]) -> Reduced:
    return _make_dispatch_method, (type(found),), {"dispatcher": found.dispatcher, "func": found.func}


def _make_dispatch_method(cls: Any) -> Any:
    made = cls.__new__(cls)
    functools.singledispatchmethod.__init__(made, lambda *_: None)
    return made


# Sentinels and types that pickle only by the name of a module's attribute


def _reduce_sentinel(sentinel: Any) -> Reduced | None:
    return getattr, (dataclasses, "MISSING" if sentinel is dataclasses.MISSING else "KW_ONLY")


def _reduce_type_parameter(found: Any) -> Reduced | None:
    """For the parameters of generic classes and functions."""
    if _is_importable(found):
        return None
    names = ("bound", "covariant", "contravariant", "infer_variance")
    options = {name: value for name in names if (value := getattr(found, f"__{name}__", None))}
    if hasattr(found, "has_default") and found.has_default():  # from Python 3.13
        options["default"] = found.__default__
    constraints = getattr(found, "__constraints__", ())
    return _make_type_parameter, (type(found), found.__name__, constraints, options, found.__module__, _tracker(found))


def _make_type_parameter(
    kind: Any, name: str, constraints: tuple[Any, ...], options: dict[str, Any], module: str, tracker: str
) -> Any:
    made = kind(name, *constraints, **options)
    made.__module__ = module
    return cloudpickle._lookup_class_or_track(tracker, made)


def _reduce_new_type(found: Any) -> Reduced | None:
    if _is_importable(found):
        return None
    return _make_new_type, (found.__qualname__, found.__supertype__, found.__module__)


def _make_new_type(name: str, supertype: Any, module: str) -> Any:
    new_type: Any = typing.NewType
    made = new_type(name, supertype)
    made.__module__ = module
    return made


def _reduce_alias(found: Any) -> Reduced | None:
    if _is_importable(found):
        return None
    return _make_alias, (type(found), found.__name__, found.__value__, found.__type_params__)


def _make_alias(kind: Any, name: str, value: Any, parameters: tuple[Any, ...]) -> Any:
    return kind(name, value, type_params=parameters)


def _is_importable(found: Any) -> bool:
    """Whether it is found by its name in a module that the other process can import."""
    module = sys.modules.get(found.__module__)
    return found.__module__ != "__main__" and getattr(module, found.__name__, None) is found


# Exceptions


def _reduce_exception(error: BaseException) -> Reduced | None:
    """For a class whose `__init__` is in Python: Python would call it with `args`, which it need not take."""
    cls: Any = type(error)
    native: Any = next(each for each in cls.__mro__ if not each.__flags__ & _IS_HEAP_TYPE)
    if cls.__init__ is native.__init__ and cls.__new__ is native.__new__:
        return None
    if cls.__reduce__ is not native.__reduce__ or cls.__reduce_ex__ is not native.__reduce_ex__:
        return None  # the class says itself how to rebuild it
    reduced: Reduced = native.__reduce__(error)
    _, args, *state = reduced
    return _make_exception, (cls, native, args), *(state or [{}]), None, None, _fill_exception


def _make_exception(cls: Any, native: Any, args: tuple[Any, ...]) -> Any:
    made = native.__new__(cls, *args)
    native.__init__(made, *args)
    return made


def _fill_exception(error: BaseException, attributes: dict[str, Any]) -> BaseException:
    vars(error).update(attributes)
    return error


def reduce_singleton(obj: Any) -> Any:
    """How to rebuild an object of a class of the notebook, also one that says to be found by its name."""
    cls: Any = type(obj)
    is_plain = cls.__reduce__ is object.__reduce__ and cls.__reduce_ex__ is object.__reduce_ex__
    if is_plain or cls in copyreg.dispatch_table:
        return NotImplemented
    found = obj.__reduce_ex__(5)
    if not isinstance(found, str):
        return found
    slots = {name: getattr(obj, name) for name in _slots(cls) if hasattr(obj, name)}
    return copyreg.__newobj__, (cls,), (dict(getattr(obj, "__dict__", {})), slots)  # type: ignore[attr-defined]


_RULES: dict[type, Callable[[Any], Reduced | None]] = {
    property: _reduce_property,
    abc.abstractproperty: _reduce_property,
    classmethod: _reduce_method,
    staticmethod: _reduce_method,
    functools.cached_property: _reduce_cached_property,
    functools.singledispatchmethod: _reduce_dispatch_method,
    type(dataclasses.MISSING): _reduce_sentinel,
    type(dataclasses.KW_ONLY): _reduce_sentinel,
    typing.TypeVar: _reduce_type_parameter,
    typing.ParamSpec: _reduce_type_parameter,
    typing.NewType: _reduce_new_type,
}
for _name, _rule in {"TypeVarTuple": _reduce_type_parameter, "TypeAliasType": _reduce_alias}.items():
    if hasattr(typing, _name):  # from 3.11, from 3.12
        _RULES[getattr(typing, _name)] = _rule
