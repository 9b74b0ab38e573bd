"""Frozen dataclasses of our own are like the standard library's."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import sys
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, FrozenInstanceError, field
from typing import Any, ClassVar

import pytest

from notebook_accel import value_class

Decorator = Callable[..., Any]
BOTH = pytest.mark.parametrize("dataclass", [dataclasses.dataclass, value_class.dataclass], ids=["theirs", "ours"])


def classes(dataclass: Decorator) -> tuple[type[Any], type[Any], type[Any]]:
    """Classes that use everything that ours do."""

    @dataclass(frozen=True)
    class Base:
        """With a default, and what is in no comparison."""

        kind: ClassVar[str] = "base"
        number: int
        text: str = "a"
        note: str = field(default="", compare=False)

    @dataclass(frozen=True, kw_only=True)
    class Derived(Base):
        """With arguments by name."""

        values: Mapping[str, float] = field(default_factory=dict, compare=False)
        secret: bytes = field(default=b"", repr=False)

    @dataclass(frozen=True, repr=False)
    class Own:
        """With methods of its own."""

        first: int
        _: KW_ONLY
        second: list[int] = field(default_factory=list)
        made: tuple[int, ...] = field(default_factory=lambda: (7,), init=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "sum", self.first + sum(self.second))

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Own) and self.first == other.first

    return Base, Derived, Own


@BOTH
def test_instances_are_made_shown_and_compared(dataclass: Decorator) -> None:
    base, derived, own = classes(dataclass)
    assert repr(base(1)).endswith("Base(number=1, text='a', note='')")
    assert repr(derived(1, "b", secret=b"x")).endswith("Derived(number=1, text='b', note='', values={})")
    assert (base(1), base(1, note="x")) == (base(1, note="x"), base(1))
    assert base(1) != base(2)
    assert base(1) != derived(1)
    assert hash(base(1)) == hash(base(1, note="x"))
    assert {base(1): 2}[base(1)] == 2
    assert derived(1).values is not derived(1).values
    found = own(1, second=[2, 3])
    assert (found.sum, found.made) == (6, (7,))
    assert repr(found).startswith("<")
    assert found == own(1)
    assert isinstance(hash(own(1, second=())), int)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="'number'"):
        base()
    with pytest.raises(TypeError, match="positional"):
        derived(1, "b", "", {})
    with pytest.raises(TypeError, match="'made'"):
        own(1, made=[])


@BOTH
def test_instances_are_frozen(dataclass: Decorator) -> None:
    base, *_ = classes(dataclass)
    found = base(1)
    for change in (lambda: setattr(found, "number", 2), lambda: setattr(found, "other", 2)):
        with pytest.raises(FrozenInstanceError, match="cannot assign to field"):
            change()
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'number'"):
        del found.number
    plain = type("Plain", (base,), {})(1)
    plain.other = 2
    with pytest.raises(FrozenInstanceError):
        plain.number = 2
    assert (plain.number, plain.other) == (1, 2)


@BOTH
def test_the_standard_librarys_functions_take_them(dataclass: Decorator) -> None:
    base, derived, own = classes(dataclass)
    assert [each.name for each in dataclasses.fields(derived)] == ["number", "text", "note", "values", "secret"]
    assert dataclasses.replace(base(1), text="b") == base(1, "b")
    assert dataclasses.asdict(base(1)) == {"number": 1, "text": "a", "note": ""}
    assert base.__match_args__ == ("number", "text", "note")
    assert own.__match_args__ == ("first",)
    assert copy.deepcopy(derived(1, values={"a": 1.0})).values == {"a": 1.0}
    assert list(inspect.signature(derived).parameters) == ["number", "text", "note", "values", "secret"]
    assert str(inspect.signature(base)) == "(number: 'int', text: 'str' = 'a', note: 'str' = '') -> None"


@value_class.dataclass(frozen=True)
class Sent:
    """One that a pickle can name."""

    values: tuple[int, ...] = ()


def test_they_are_pickled() -> None:
    assert pickle.loads(pickle.dumps(Sent((1, 2)))) == Sent((1, 2))


def test_one_that_contains_itself_is_shown() -> None:
    found = Sent()
    object.__setattr__(found, "values", (found,))
    assert repr(found) == "Sent(values=(...,))"


def test_all_frozen_classes_of_the_launcher_are_such() -> None:
    """One that is not costs the first cell as much as five."""
    import notebook_accel.launch.driver.launch  # noqa: F401

    found = [
        value
        for name, module in list(sys.modules.items())
        if name.startswith("notebook_accel.")
        for value in vars(module).values()
    ]
    frozen = {
        f"{each.__module__}.{each.__name__}"
        for each in found
        if isinstance(each, type) and dataclasses.is_dataclass(each) and each.__dataclass_params__.frozen
    }
    assert {name for name in frozen if not name.startswith("notebook_accel.train.")} == set()
