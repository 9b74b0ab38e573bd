"""Whether a fingerprint tells that a value has changed, and what it costs."""

from __future__ import annotations

import gc
import pickle
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
import torch

from notebook_accel.notebook.cells.fingerprints import BRIEFLY, Fingerprint, differ, take


class Options:
    """Stands for a class that a notebook defines."""

    rate = 0.1

    def __init__(self) -> None:
        self.decay = 0.5

    @property
    def both(self) -> float:
        return self.rate + self.decay


@pytest.fixture
def options(monkeypatch: pytest.MonkeyPatch) -> type[Options]:
    monkeypatch.setattr(Options, "__module__", "__main__")
    monkeypatch.setattr(Options, "rate", 0.1)
    return Options


def taken(value: Any) -> Fingerprint:
    found = take(value, complete=True)
    assert found is not None
    return found


def is_seen(value: Any, change: Callable[[Any], object], *, complete: bool = False) -> bool | None:
    """Whether a change is seen; without it, the value must look the same."""
    before = taken(value)
    assert differ(before, taken(value), complete=True) is False
    change(value)
    return differ(before, taken(value), complete=complete)


def reader(held: dict[str, float]) -> Callable[[], float]:
    return lambda: held["rate"]


CHANGES: dict[str, tuple[Callable[[], Any], Callable[[Any], object]]] = {
    "a value of a dict": (lambda: {"lr": 0.1}, lambda it: it.update(lr=0.01)),
    "an item of a list in a list": (lambda: [[1, 2], 3], lambda it: it[0].append(4)),
    "a member of a set": (lambda: {1, 2}, lambda it: it.add(3)),
    "a list in itself": (lambda: (it := [1], it.append(it))[0], lambda it: it.append(2)),
    "a bytearray": (lambda: bytearray(10), lambda it: it.extend(b"1")),
    "a long text in a list": (lambda: ["a" * 10**6], lambda it: it.append("b")),
    "an array": (lambda: np.zeros(10), lambda it: it.__setitem__(3, 1)),
    "an array's shape": (lambda: np.zeros((2, 3)), lambda it: it.resize((3, 2), refcheck=False)),
    "an array of no dimensions": (lambda: np.array(1.0), lambda it: it.fill(2)),
    "an array of every other element": (lambda: np.zeros((20, 2))[:, ::2], lambda it: it.fill(1)),
    "an array of times": (lambda: np.array(["2020"], "M8[s]"), lambda it: it.fill("2021")),
    "an array of objects": (lambda: np.array([{}, "a"], object), lambda it: it[0].update(a=1)),
    "a masked array's mask": (lambda: np.ma.array([1, 2], mask=[0, 1]), lambda it: it.mask.fill(1)),
    "all of a large array": (lambda: np.zeros(10**6), lambda it: it.fill(1)),
    "the end of a large array": (lambda: np.zeros(10**6), lambda it: it.__setitem__(-1, 1)),
    "a large array of every other element": (lambda: np.zeros((10**6, 2))[:, 0], lambda it: it.fill(1)),
    "a column of a table": (lambda: pd.DataFrame({"a": [1, 2], "b": ["x", "y"]}), lambda it: it.__setitem__("c", 1)),
    "a cell of a table": (lambda: pd.DataFrame({"a": [1, 2]}), lambda it: it.loc.__setitem__((0, "a"), 5)),
    "a tensor": (lambda: torch.zeros(3), lambda it: it.add_(1)),
    "a tensor, through an array": (lambda: torch.zeros(3), lambda it: it.numpy().fill(1)),
    "one element of a large tensor": (lambda: torch.zeros(2 * 10**6), lambda it: it[12_345].fill_(1)),
    "a large tensor's data": (lambda: torch.zeros(2 * 10**6), lambda it: setattr(it, "data", torch.ones(2 * 10**6))),
    "a sparse tensor": (lambda: torch.eye(3).to_sparse(), lambda it: it.mul_(2)),
    "whether a tensor needs a gradient": (lambda: torch.zeros(3), lambda it: it.requires_grad_()),
    "a model's weights": (lambda: torch.nn.Linear(2, 2), lambda it: it.weight.data.zero_()),
    "a model's mode": (lambda: torch.nn.Dropout(), lambda it: it.eval()),
    "an optimizer's rate": (
        lambda: torch.optim.SGD(torch.nn.Linear(2, 2).parameters(), lr=0.1),
        lambda it: it.param_groups[0].update(lr=0.01),
    ),
    "what a function holds": (lambda: reader({"rate": 1.0}), lambda it: it.__closure__[0].cell_contents.clear()),
    "a function's attribute": (lambda: reader({}), lambda it: setattr(it, "calls", 1)),
}


@pytest.mark.parametrize(("make", "change"), CHANGES.values(), ids=CHANGES)
def test_a_change_is_seen(make: Callable[[], Any], change: Callable[[Any], object]) -> None:
    assert is_seen(make(), change) is True


def test_a_change_of_a_tensor_without_a_version_is_seen() -> None:
    with torch.inference_mode():
        for size in (3, 2 * 10**6):
            assert is_seen(torch.zeros(size), lambda it: it.add_(1)) is True


def test_a_change_of_a_class_and_its_instances_is_seen(options: type[Options]) -> None:
    assert is_seen(options(), lambda it: setattr(it, "decay", 1)) is True
    assert is_seen(options, lambda it: setattr(it, "rate", 1)) is True


def test_what_a_module_defines_and_constants_are_never_compared() -> None:
    same = taken(3)
    for value in ("text", b"bytes", None, np, len, pd.concat, torch.nn.Linear, range(3)):
        assert taken(value) == same


def test_one_element_of_a_large_array_is_seen_in_a_complete_comparison_only() -> None:
    assert is_seen(np.zeros(10**7), lambda it: it.__setitem__(123_456, 1)) is False
    assert is_seen(np.zeros(10**7), lambda it: it.__setitem__(123_456, 1), complete=True) is True
    assert is_seen(np.zeros((10**6, 2))[:, 0], lambda it: it.__setitem__(123_456, 1), complete=True) is True


def test_a_complete_checksum_is_the_same_for_a_copy_in_another_process() -> None:
    value = {"rows": np.arange(2.0 * 10**6), "columns": np.arange(2.0 * 10**6).reshape(2, -1)[:, ::2]}
    program = "import sys, pickle; from notebook_accel.notebook.cells.fingerprints import take; "
    program += "print(take(pickle.load(sys.stdin.buffer), complete=True).complete)"
    found = subprocess.run([sys.executable, "-c", program], input=pickle.dumps(value), stdout=-1, check=True)
    assert int(found.stdout) == taken(value).complete


def test_arrays_that_two_values_share_are_known() -> None:
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters())
    assert taken(model).memory & taken(optimizer).memory
    assert not taken(model).memory & taken(torch.nn.Linear(2, 2)).memory
    assert not taken(torch.zeros(0)).memory
    assert not taken(np.zeros(0)).memory


class Slow:
    """Takes long to pickle."""

    def __reduce__(self) -> Any:
        until = time.thread_time() + 2 * BRIEFLY
        while time.thread_time() < until:
            pass
        return list, ()


def test_what_costs_too_much_has_no_fingerprint() -> None:
    assert take(list(range(2_000_000))) is None
    assert take(threading.Lock()) is None
    assert take(Slow(), seconds=BRIEFLY) is None
    assert differ(None, taken([]), complete=True) is None
    assert differ(taken([]), None, complete=True) is None


class Collected:
    """Records whether the garbage collector may run while it is pickled."""

    seen: ClassVar[list[bool]] = []

    def __reduce__(self) -> Any:
        self.seen.append(gc.isenabled())
        return list, ()


def test_no_garbage_collection_counts_as_time_of_a_fingerprint() -> None:
    taken(Collected())
    assert Collected.seen == [False]
    assert gc.isenabled()


@pytest.mark.parametrize("make", [lambda: np.empty(2**27), lambda: torch.empty(2**28)], ids=["array", "tensor"])
def test_a_gigabyte_is_neither_read_completely_nor_copied(make: Callable[[], Any]) -> None:
    value = make()
    tracemalloc.start()
    try:
        began = time.thread_time()
        assert take(value) is not None
        assert time.thread_time() - began < 0.2
        assert tracemalloc.get_traced_memory()[1] < 10**7
    finally:
        tracemalloc.stop()


def test_a_fingerprint_imports_neither_torch_nor_numpy() -> None:
    program = "import sys; from notebook_accel.notebook.cells.fingerprints import take; "
    program += "assert take([{1: 'a'}, lambda: 1]) is not None; assert not {'torch', 'numpy'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", program], check=True)
