"""The bases of the states and of `Accelerator`: one object a rank, and code on some ranks only, or one first."""

from __future__ import annotations

import dataclasses
import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import torch

from notebook_accel import rank_local
from notebook_accel.errors import ConfigurationError
from notebook_accel.train.ranks.mesh import Ranks
from notebook_accel.train.ranks.process_group import Membership
from notebook_accel.train.tensors import pytree
from notebook_accel.train.tensors.rows import Reading, is_array, take

if TYPE_CHECKING:
    from typing_extensions import Self

F = TypeVar("F", bound=Callable[..., Any])


class OneOfRank:
    """An object of which each rank has one, which its class returns each time."""

    _key: ClassVar[str]
    """Its name in the rank's space."""

    @classmethod
    def settled(cls) -> Self | None:
        """This rank's object, or `None` if there is none yet."""
        found: Self | None = rank_local.space().get(cls._key)
        return found

    @classmethod
    def _reset_state(cls) -> None:
        """Drops the object; the next one is made from scratch."""
        rank_local.space().pop(cls._key, None)

    @property
    def initialized(self) -> bool:
        """Whether this rank still has the state, rather than one made after it was dropped."""
        return rank_local.space().get(self._key) is self


class RankAware(ABC):
    """An object that knows this rank's place among the others."""

    @property
    @abstractmethod
    def _membership(self) -> Membership:
        """The rank's device and numbers."""

    @property
    def device(self) -> torch.device:
        """The device of this rank."""
        return self._membership.device

    @property
    def num_processes(self) -> int:
        """How many ranks there are."""
        return self._membership.world_size

    @property
    def process_index(self) -> int:
        """This rank's number, from 0."""
        return self._membership.rank

    @property
    def local_process_index(self) -> int:
        """This rank's number on its node."""
        return self._membership.local_rank

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
        """Gives this rank its share of a list, tuple, tensor, array, or data set, or of each of these in a dict.

        If the elements do not divide evenly, earlier ranks get one more. A text goes to every rank as it is, and so
        does a number in a dict. Ranks that share layers or sequences, under an `Accelerator`, get the same share.

        Args:
            inputs: What to divide, along its first dimension. A dict may be nested, and a dataclass or a named tuple
                is divided like it; its values must have the same length.
            apply_padding: Whether to repeat the last element until all shares have the same length: that of the share,
                or of the whole data set, as in Accelerate.

        Raises:
            ConfigurationError: The inputs cannot be divided, or the values of a dict differ in length.
        """
        yield share(inputs, self._data_ranks.rank, self._data_ranks.size, pad=apply_padding)


class _Inputs(Reading):
    """Inputs to divide, of which each sequence has an entry for each sample."""

    def is_column(self, value: Any) -> bool:
        if isinstance(value, (str, bytes, Mapping)) or pytree.is_namedtuple(value) or dataclasses.is_dataclass(value):
            return False
        if is_array(value):
            return bool(value.ndim)
        return hasattr(value, "__getitem__") and hasattr(value, "__len__")


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
    columns = list(_Inputs().columns(inputs))
    if not columns:
        raise ConfigurationError(
            f"a {type(inputs).__name__} can't be divided among ranks: pass a list, tuple, tensor, array, or data set, "
            "or a dict of these"
        )
    lengths = {len(column) for _, column in columns}
    if len(lengths) > 1:
        raise ConfigurationError(
            f"the values of a dict must have the same length to be divided, but have several: {sorted(lengths)}"
        )
    length = lengths.pop()
    least, extra = divmod(length, size)
    start = rank * least + min(rank, extra)
    end = start + least + (rank < extra)
    missing = math.ceil(length / size) - (end - start)
    is_dataset = any(hasattr(column, "select") and not is_array(column) for _, column in columns)
    last = length - 1 if is_dataset or end == start else end - 1  # of the whole data set, as in Accelerate
    chosen = [*range(start, end), *[last] * missing] if pad and missing else None
    return take(inputs, slice(start, end) if chosen is None else chosen, _Inputs(length))


def _only_if(condition: Callable[[], bool], function: F) -> F:
    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs) if condition() else None

    return run  # type: ignore[return-value]
