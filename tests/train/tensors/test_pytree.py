"""Batches of any structure keep it."""

from __future__ import annotations

import copy
from collections import OrderedDict, UserDict, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from notebook_accel.train.tensors import pytree, rows
from tests.train.data.loaders import Encoding, Pair, Sample


class Frozen(Mapping):
    """A mapping that cannot be changed."""

    def __init__(self, items: dict[str, Any]) -> None:
        self._items = dict(items)

    def __getitem__(self, key: str) -> Any:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)


@dataclass(frozen=True)
class Record:
    tensor: torch.Tensor
    derived: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "derived", 7)


ONE = torch.ones(2)
TREES = {
    "a tensor": (ONE, lambda found: found),
    "a list": ([ONE], lambda found: found[0]),
    "a tuple": (("x", ONE), lambda found: found[1]),
    "a named tuple": (Pair(ONE, 3), lambda found: found.inputs),
    "a dictionary": ({"a": {"b": ONE}}, lambda found: found["a"]["b"]),
    "an ordered one": (OrderedDict(b=1, a=ONE), lambda found: found["a"]),
    "one with a default": (defaultdict(list, a=ONE), lambda found: found["a"]),
    "a user's": (UserDict(a=ONE), lambda found: found["a"]),
    "an encoding": (Encoding({"a": ONE}, "kept"), lambda found: found["a"]),
    "a mapping that cannot be changed": (Frozen({"a": ONE}), lambda found: found["a"]),
    "a dataclass": (Sample(ONE, "x"), lambda found: found.inputs),
    "a frozen dataclass": (Record(ONE), lambda found: found.tensor),
    "all together": ([{"a": (Pair(Sample([ONE], "x"), 1),)}], lambda found: found[0]["a"][0].inputs.inputs[0]),
}


@pytest.mark.parametrize("name", TREES)
def test_a_tree_is_rebuilt_with_its_types(name: str) -> None:
    data, leaf = TREES[name]
    new = pytree.recursively_apply(lambda tensor, by: tensor + by, data, 1)
    assert type(new) is type(data)
    assert leaf(new).tolist() == [2, 2]
    assert leaf(data) is ONE
    assert ONE.tolist() == [1, 1]
    for kept in ("encodings", "derived", "default_factory", "name"):
        assert getattr(new, kept, None) == getattr(data, kept, None)


@pytest.mark.parametrize("name", TREES)
def test_trees_are_joined_cut_and_moved(name: str) -> None:
    data, leaf = TREES[name]
    if all(isinstance(each, torch.Tensor) for each in _leaves(data)):
        assert leaf(rows.concatenate([data, data, data])).tolist() == [1] * 6
    assert leaf(rows.slice_tensors(data, slice(1))).tolist() == [1]
    assert leaf(pytree.send_to_device(copy.deepcopy(data), "meta")).device.type == "meta"
    assert pytree.find_batch_size(data) == 2
    assert leaf(pytree.listify(data)) == [1.0, 1.0]
    empty = pytree.initialize_tensors(pytree.get_data_structure(data))
    assert (leaf(empty).shape, leaf(empty).dtype) == (ONE.shape, ONE.dtype)
    assert pytree.leaves(empty)[0].shape == ONE.shape


def _leaves(data: Any) -> list[Any]:
    return pytree.leaves(data, lambda value: pytree.with_children(value, lambda _, child: child) is None)


def test_what_is_no_tensor_is_left_alone_or_refused() -> None:
    assert pytree.recursively_apply(torch.neg, ["text", 1, None]) == ["text", 1, None]
    with pytest.raises(TypeError, match=r"neg takes tensors, .* found a str"):
        pytree.recursively_apply(torch.neg, {"a": ["text"]}, error_on_other_type=True)


def test_an_operation_on_tensors_is_named_if_it_gets_something_else() -> None:
    assert pytree.tensors({"a": [ONE], "b": (ONE, ONE)}, "gather") == [ONE, ONE, ONE]
    for other in (1.5, [ONE, None], {"a": (ONE, "text")}):
        with pytest.raises(TypeError, match=r"^gather takes tensors, .*; found a (float|NoneType|str): pass torch"):
            pytree.tensors(other, "gather")


def test_the_size_and_the_device_of_a_tree_without_tensors_are_unknown() -> None:
    assert pytree.find_device(["a", {"b": torch.ones(1)}]) == torch.device("cpu")
    assert pytree.find_device(["a"]) is None
    assert pytree.ignorant_find_batch_size([torch.tensor(1), torch.ones(3, 2)]) == 3
    assert pytree.ignorant_find_batch_size(["a"]) is None


def test_only_tensors_are_distinguished_from_mixtures() -> None:
    assert pytree.has_only_tensors([{"a": ONE}, (ONE,)])
    assert not pytree.has_only_tensors([{"a": ONE}, "text"])
    assert not pytree.has_only_tensors(3)


def test_a_batch_size_comes_from_the_first_tensor_that_has_one() -> None:
    assert pytree.find_batch_size({"weight": torch.tensor(2.0), "rows": torch.ones(5, 2), "other": ONE}) == 5
    for nothing in ([], ["text"], torch.tensor(1)):
        with pytest.raises(ValueError, match="has no tensor of one or more dimensions"):
            pytree.find_batch_size(nothing)


def test_some_keys_can_stay_where_they_are() -> None:
    batch = {"moves": ONE, "stays": ONE, "below": {"stays": ONE}}
    for keys in ("stays", ["stays"]):
        found = pytree.send_to_device({**batch, "stays": [ONE]}, "meta", skip_keys=keys)
        assert (found["moves"].device.type, found["stays"][0].device.type) == ("meta", "cpu")
    found = pytree.send_to_device(batch, "meta", skip_keys="stays")
    assert (found["stays"].device.type, found["below"]["stays"].device.type) == ("cpu", "cpu")


def test_what_knows_how_to_move_moves_itself() -> None:
    class Movable:
        def __init__(self) -> None:
            self.device = "cpu"

        def to(self, device: str, non_blocking: bool) -> Movable:
            self.device = f"{device} {non_blocking}"
            return self

    found = pytree.send_to_device([Movable(), Encoding({"a": ONE}, "kept")], "meta", non_blocking=True)
    assert found[0].device == "meta True"
    assert found[1].encodings == "kept"
    assert found[1]["a"].device.type == "meta"
    packed = torch.nn.utils.rnn.pack_sequence([ONE, ONE])
    assert type(pytree.send_to_device(packed, "cpu")) is type(packed)
