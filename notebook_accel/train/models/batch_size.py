"""Finds batch sizes that fit, and frees memory."""

from __future__ import annotations

import functools
import gc
import inspect
from collections.abc import Callable
from typing import Any, overload

import torch

_OUT_OF_MEMORY_MESSAGES = (
    "out of memory",
    "cuDNN error: CUDNN_STATUS_NOT_SUPPORTED",  # cuDNN's error if its workspace does not fit
    "DefaultCPUAllocator: can't allocate memory",
    "DefaultCPUAllocator: not enough memory",
)


@overload
def find_executable_batch_size(
    function: Callable[..., Any],
    starting_batch_size: int = 128,
    reduce_batch_size_fn: Callable[[], int] | None = None,
) -> Callable[..., Any]: ...


@overload
def find_executable_batch_size(
    function: None = None,
    starting_batch_size: int = 128,
    reduce_batch_size_fn: Callable[[], int] | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]: ...


def find_executable_batch_size(
    function: Callable[..., Any] | None = None,
    starting_batch_size: int = 128,
    reduce_batch_size_fn: Callable[[], int] | None = None,
) -> Callable[..., Any]:
    """Calls a function with smaller and smaller batch sizes until they fit in memory; used as a decorator.

    The function takes the batch size as its first parameter, and callers leave it out. The function must create its
    models and data itself: objects from outside would still hold memory at the next attempt. A later call starts
    with the size that worked.

    Args:
        function: The function to call.
        starting_batch_size: The first size to try.
        reduce_batch_size_fn: Returns the next size; by default, each size is 0.9 times the last.

    Raises:
        TypeError: The function is called with a batch size, or with too many arguments.
        RuntimeError: The size has reached 0. An error of the function that is not about memory is raised unchanged.
    """
    if function is None:
        return functools.partial(
            find_executable_batch_size,
            starting_batch_size=starting_batch_size,
            reduce_batch_size_fn=reduce_batch_size_fn,
        )
    batch_size = starting_batch_size

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal batch_size
        _refuse_batch_size(function, args)
        clear_device_cache(garbage_collection=True)
        while True:
            if batch_size < 1:
                raise RuntimeError("No executable batch size found, reached zero: even a batch of 1 needs more memory.")
            try:
                return function(batch_size, *args, **kwargs)
            except Exception as error:
                if not should_reduce_batch_size(error):
                    raise
            # Not in the `except` block, where the error keeps the frames alive, and these the tensors that did not fit.
            clear_device_cache(garbage_collection=True)
            batch_size = int(batch_size * 0.9) if reduce_batch_size_fn is None else reduce_batch_size_fn()

    return call


def should_reduce_batch_size(exception: Exception) -> bool:
    """Whether an error means that memory ran out, on a device or on the host."""
    if isinstance(exception, (torch.OutOfMemoryError, MemoryError)):
        return True
    text = str(exception)
    return isinstance(exception, RuntimeError) and any(message in text for message in _OUT_OF_MEMORY_MESSAGES)


def release_memory(*objects: Any) -> list[None]:
    """Collects garbage, and returns the memory that torch has cached to the device.

    Returns:
        A `None` for each object, to be assigned to its name: `model, batch = release_memory(model, batch)`.
    """
    # The caller's names still hold the objects, until they are assigned; only existing garbage is freed now.
    count = len(objects)
    del objects
    clear_device_cache(garbage_collection=True)
    return [None] * count


def clear_device_cache(garbage_collection: bool = False) -> None:
    """Returns the memory that torch has cached to the device.

    Args:
        garbage_collection: Whether to collect Python's garbage first, which takes a while.
    """
    if garbage_collection:
        gc.collect()
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.empty_cache()
    elif torch.backends.mps.is_available():
        torch.mps.empty_cache()


def _refuse_batch_size(function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    parameters = list(inspect.signature(function).parameters.values())
    positional = [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    takes_any = any(each.kind is each.VAR_POSITIONAL for each in parameters)
    if not takes_any and len(args) >= len(positional):
        name = getattr(function, "__name__", "the function")
        taken = ", ".join(each.name for each in positional[1:])
        raise TypeError(
            f"{name} was called with {len(args)} arguments but takes {max(0, len(positional) - 1)}: the batch size is "
            f"passed by find_executable_batch_size, so call {name}({taken})"
        )
