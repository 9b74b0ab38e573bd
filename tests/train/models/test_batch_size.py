"""Batch sizes that fit, and memory given back."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import accelerate.utils
import pytest
import torch

from notebook_accel.train.models.batch_size import (
    clear_device_cache,
    find_executable_batch_size,
    release_memory,
    should_reduce_batch_size,
)


@pytest.fixture(autouse=True)
def collecting_is_quick() -> Iterator[None]:
    """Looks only at what the test itself makes: torch alone has so many objects that a collection takes 0.1 s."""
    gc.freeze()
    yield
    gc.unfreeze()


TOO_LITTLE = "CUDA out of memory. Tried to allocate 20.00 GiB"


def tried(find: Any, largest: int, **options: Any) -> list[int]:
    sizes: list[int] = []

    @find(**options)
    def train(batch_size: int, extra: str = "") -> int:
        sizes.append(batch_size)
        if batch_size > largest:
            raise RuntimeError(TOO_LITTLE)
        return batch_size

    assert train(extra="x") <= largest
    train("x")  # begins with what worked
    return sizes


@pytest.mark.parametrize("largest", [1000, 100, 17, 1])
def test_the_sizes_are_those_of_accelerate(largest: int) -> None:
    ours = tried(find_executable_batch_size, largest)
    assert ours == tried(accelerate.utils.find_executable_batch_size, largest)
    assert ours[0] == 128


def test_the_user_can_choose_the_next_size() -> None:
    sizes = iter([64, 10])
    assert tried(find_executable_batch_size, 20, starting_batch_size=100, reduce_batch_size_fn=lambda: next(sizes)) == [
        100,
        64,
        10,
        10,
    ]


def test_it_decorates_with_and_without_options() -> None:
    @find_executable_batch_size
    def train(batch_size: int) -> int:
        return batch_size

    assert train() == 128
    assert train.__name__ == "train"
    assert find_executable_batch_size(train.__wrapped__, starting_batch_size=3)() == 3


def test_no_size_at_all_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="No executable batch size found, reached zero"):
        tried(find_executable_batch_size, 0)


def test_another_error_is_the_users() -> None:
    @find_executable_batch_size
    def train(batch_size: int) -> None:
        raise RuntimeError("shapes do not match")

    with pytest.raises(RuntimeError, match="shapes do not match"):
        train()


@pytest.mark.parametrize("arguments", [(64, "model"), (64, "model", 3)])
def test_a_batch_size_in_the_call_is_refused(arguments: tuple[Any, ...]) -> None:
    @find_executable_batch_size
    def train(batch_size: int, model: str) -> None: ...

    with pytest.raises(TypeError, match=r"passed by find_executable_batch_size, so call train\(model\)"):
        train(*arguments)


def test_what_did_not_fit_is_freed_before_the_next_try() -> None:
    class Big:
        pass

    alive: list[weakref.ref[Big]] = []

    @find_executable_batch_size(starting_batch_size=2)
    def train(batch_size: int) -> None:
        assert all(reference() is None for reference in alive)
        model = Big()
        alive.append(weakref.ref(model))
        if batch_size > 1:
            raise RuntimeError(TOO_LITTLE)

    gc.disable()
    try:
        train()
    finally:
        gc.enable()
    assert len(alive) == 2


@pytest.mark.parametrize(
    ("error", "reduces"),
    [
        (torch.OutOfMemoryError("anything"), True),
        (RuntimeError("MPS backend out of memory (MPS allocated: 1 GB)"), True),
        (RuntimeError("cuDNN error: CUDNN_STATUS_NOT_SUPPORTED. This error may appear if ..."), True),
        (
            RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"),
            True,
        ),
        (MemoryError(), True),
        (RuntimeError("expected scalar type Float but found Half"), False),
        (ValueError("out of memory. not"), False),
    ],
)
def test_errors_about_memory_are_distinguished_from_others(error: Exception, reduces: bool) -> None:
    assert should_reduce_batch_size(error) is reduces


def test_a_real_lack_of_memory_is_recognized() -> None:
    @find_executable_batch_size(starting_batch_size=2, reduce_batch_size_fn=lambda: 1)
    def train(batch_size: int) -> int:
        return torch.empty(2**60 if batch_size > 1 else 8, dtype=torch.uint8).numel()

    assert train() == 8


def test_released_objects_become_none() -> None:
    one, two = torch.ones(3), torch.ones(3)
    one, two = release_memory(one, two)
    assert (one, two) == (None, None)
    assert release_memory() == []


def test_garbage_is_collected_on_request() -> None:
    class Ring:
        def __init__(self) -> None:
            self.itself = self

    gc.disable()
    try:
        reference = weakref.ref(Ring())
        clear_device_cache()
        assert reference() is not None
        clear_device_cache(garbage_collection=True)
        assert reference() is None
    finally:
        gc.enable()
