"""Running code on some ranks only, or on one rank first: the base of the states and of `Accelerator`."""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import torch

from notebook_accel.errors import ConfigurationError
from notebook_accel.train.ranks.sample_sharing import Ranks

F = TypeVar("F", bound=Callable[..., Any])


class RankAware(ABC):
    """An object that knows the number of its rank, and how many there are."""

    @property
    @abstractmethod
    def num_processes(self) -> int:
        """How many ranks there are."""

    @property
    @abstractmethod
    def process_index(self) -> int:
        """This rank's number, from 0."""

    @property
    @abstractmethod
    def local_process_index(self) -> int:
        """This rank's number on its node."""

    @abstractmethod
    def wait_for_everyone(self) -> None:
        """Waits until all ranks have reached this call."""

    @property
    def _data_ranks(self) -> Ranks:
        """The ranks that get different samples."""
        return Ranks(self.process_index, self.num_processes)

    @property
    def is_main_process(self) -> bool:
        """Whether this is rank 0."""
        return self.process_index == 0

    @property
    def is_local_main_process(self) -> bool:
        """Whether this is the first rank of its node."""
        return self.local_process_index == 0

    @property
    def is_last_process(self) -> bool:
        """Whether this is the rank with the highest number."""
        return self.process_index == self.num_processes - 1

    @property
    def use_distributed(self) -> bool:
        """Whether there is more than one rank."""
        return self.num_processes > 1

    def print(self, *args: Any, **kwargs: Any) -> None:
        """Prints, once on each node."""
        if self.is_local_main_process:
            print(*args, **kwargs)  # noqa: T201  # that is what it is for

    def on_main_process(self, function: Any = None) -> Any:
        """Makes a function run on rank 0 only; it returns `None` elsewhere."""
        return self.on_main_process if function is None else _only_if(lambda: self.is_main_process, function)

    def on_local_main_process(self, function: Any = None) -> Any:
        """Makes a function run on the first rank of each node only."""
        if function is None:
            return self.on_local_main_process
        return _only_if(lambda: self.is_local_main_process, function)

    def on_last_process(self, function: F) -> F:
        """Makes a function run on the last rank only."""
        return _only_if(lambda: self.is_last_process, function)

    def on_process(self, function: Any = None, process_index: int | None = None) -> Any:
        """Makes a function run on one rank only: `@accelerator.on_process(process_index=2)`.

        A single rank runs it whatever the number, as in Accelerate.
        """
        if function is None:
            return functools.partial(self.on_process, process_index=process_index)
        return _only_if(lambda: not self.use_distributed or self.process_index == process_index, function)

    def on_local_process(self, function: Any = None, local_process_index: int | None = None) -> Any:
        """Makes a function run on one rank of each node only; a single rank runs it whatever the number."""
        if function is None:
            return functools.partial(self.on_local_process, local_process_index=local_process_index)
        return _only_if(lambda: not self.use_distributed or self.local_process_index == local_process_index, function)

    @contextmanager
    def main_process_first(self) -> Iterator[None]:
        """Lets rank 0 run the block before the others: `with accelerator.main_process_first(): download()`."""
        yield from self._first(self.is_main_process)

    @contextmanager
    def local_main_process_first(self) -> Iterator[None]:
        """Lets the first rank of each node run the block before the others there."""
        yield from self._first(self.is_local_main_process)

    def _first(self, goes_first: bool) -> Iterator[None]:
        if not goes_first:
            self.wait_for_everyone()
        try:
            yield
        finally:
            if goes_first:
                self.wait_for_everyone()

    @contextmanager
    def split_between_processes(self, inputs: Any, apply_padding: bool = False) -> Iterator[Any]:
        """Gives this rank its share of a list, tuple, tensor or data set, or of each of a dict's values.

        If the elements do not divide evenly, earlier ranks get one more. A string goes to every rank as it is. Ranks
        that share layers or sequences, under an `Accelerator`, get the same share.

        Args:
            inputs: What to divide, along its first dimension; the values of a dict must have the same length.
            apply_padding: Whether to repeat the last element until all shares have the same length: that of the share,
                or of the whole data set, as in Accelerate.

        Raises:
            ConfigurationError: The inputs cannot be divided, or the values of a dict differ in length.
        """
        yield share(inputs, self._data_ranks.rank, self._data_ranks.size, pad=apply_padding)


def share(inputs: Any, rank: int, size: int, *, pad: bool = False) -> Any:
    """The share of rank `rank` of `size`; see `RankAware.split_between_processes`.

    Args:
        inputs: What to share out.
        rank: The rank whose share is returned.
        size: The number of ranks.
        pad: Whether shorter shares are filled up with their last element.
    """
    if size == 1 or isinstance(inputs, (str, bytes)):  # a text, such as a prompt, is one sample
        return inputs
    if isinstance(inputs, Mapping):
        lengths = {len(value) for value in inputs.values()}
        if len(lengths) > 1:
            raise ConfigurationError(
                f"the values of a dict must have the same length to be divided, but have several: {sorted(lengths)}"
            )
        return type(inputs)({key: share(value, rank, size, pad=pad) for key, value in inputs.items()})  # type: ignore[call-arg]
    if not hasattr(inputs, "__getitem__") or not hasattr(inputs, "__len__"):
        raise ConfigurationError(
            f"a {type(inputs).__name__} can't be divided among ranks: pass a list, tuple, dict or tensor"
        )
    least, extra = divmod(len(inputs), size)
    start = rank * least + min(rank, extra)
    own = least + (rank < extra)
    longest = math.ceil(len(inputs) / size)
    if pad and own < longest and _is_dataset(inputs):
        return inputs.select([*range(start, start + own), *[len(inputs) - 1] * (longest - own)])
    part = _cut(inputs, start, start + own)
    return _filled(part, inputs, longest) if pad and own < longest else part


def _cut(inputs: Any, start: int, end: int) -> Any:
    if _is_dataset(inputs):
        return inputs.select(range(start, end) if start < end else [])  # a range may not begin at the end
    return inputs[start:end]


def _is_dataset(inputs: Any) -> bool:
    """Whether this is a data set of the `datasets` library, whose slices are dicts."""
    return hasattr(inputs, "select") and not isinstance(inputs, (list, tuple, str, torch.Tensor))


def _filled(part: Any, inputs: Any, length: int) -> Any:
    """The part with its last element repeated up to a length; if it is empty, the last element of all inputs is."""
    missing = length - len(part)
    last = part[-1:] if len(part) else inputs[-1:]
    if isinstance(part, torch.Tensor):
        return torch.cat([part, *[last.to(part.device)] * missing])
    if isinstance(part, (list, tuple)):
        return part + last * missing
    raise ConfigurationError(f"a {type(part).__name__} can't be padded: pass a list, tuple, tensor or data set")


def _only_if(condition: Callable[[], bool], function: F) -> F:
    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs) if condition() else None

    return run  # type: ignore[return-value]
