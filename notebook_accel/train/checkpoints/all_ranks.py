"""Steps that all ranks take together: one that fails on one rank raises on all, so that none waits forever."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

import torch

from notebook_accel.errors import CheckpointError
from notebook_accel.train.ranks.logging import get_logger
from notebook_accel.train.ranks.rank_messages import LOOK_INTERVAL, RankMessages
from notebook_accel.train.ranks.seeds import of_first
from notebook_accel.train.ranks.state import PartialState

T = TypeVar("T")
_FAILED = "\0"
"""The first character of what a rank sends whose action has failed."""
_LONG_WAIT_S = 20.0
_TOPIC = "checkpoints"
_LONGEST, _PADDING = 4096, b"\0"
"""How many bytes rank 0 sends to all: what it could not do, cut off after so many, and filled up."""

_log = get_logger(__name__)


class Gather(Protocol):
    """Sends a text to all ranks, under the name of a step; returns that of each rank, or of rank 0 alone."""

    def __call__(self, task: str, text: str, *, from_first: bool = False) -> list[str]: ...


class AllRanks:
    """How the ranks of a save or a load wait for each other.

    Args:
        gather: How they exchange texts; `None`: with a collective, so only on the thread of the training.
    """

    def __init__(self, gather: Gather | None = None) -> None:
        self._gather = gather or _gather
        state = PartialState()  # another thread may not see it later, when the run is over
        self.is_first = state.is_main_process
        """Whether this is rank 0."""
        self.is_first_on_node = state.is_local_main_process
        self._has_other_nodes = True
        """Whether there are several nodes, as each exchange finds out."""

    def run(self, task: str, action: Callable[[], T]) -> T:
        """Runs an action on every rank, and waits until all have done so.

        Raises:
            CheckpointError: It failed on another rank; if it failed on this one, its own exception is raised.
        """
        return self._together(task, action, lambda result: "")[0]

    def collect(self, task: str, action: Callable[[], str]) -> list[str]:
        """Runs an action on every rank, and returns the result of each.

        Raises:
            CheckpointError: It failed on another rank; if it failed on this one, its own exception is raised.
        """
        return self._together(task, action, lambda result: result)[1]

    def _together(
        self, task: str, action: Callable[[], T], describe: Callable[[T], str], *, on_first: bool = False
    ) -> tuple[T, list[str]]:
        """Runs an action on every rank, or on rank 0; returns its result, and a description of that of each of them."""
        error: Exception | None = None
        result: Any = None
        if self.is_first or not on_first:
            try:
                result = action()
            except Exception as raised:
                error = raised
        own = _FAILED + f"{type(error).__name__}: {error}" if error is not None else describe(result)
        every = self._gather(task, f"{self.is_first_on_node:d}{own}", from_first=on_first)
        if not on_first:
            self._has_other_nodes = sum(text.startswith("1") for text in every) > 1
        texts = [text[1:] for text in every]
        if error is not None:
            raise error
        failed = next((rank for rank, text in enumerate(texts) if text.startswith(_FAILED)), None)
        if failed is not None:
            raise CheckpointError(f"rank {failed} could not {task}: {texts[failed].removeprefix(_FAILED)}")
        return result, texts

    def run_on_first(self, task: str, action: Callable[[], None]) -> None:
        """Runs an action on rank 0, which waits for no other; the others wait for it."""
        self._together(task, action, lambda result: "", on_first=True)

    def run_on_each_disk(self, task: str, action: Callable[[], None]) -> None:
        """Runs an action on rank 0, then on the first rank of each other node, which does nothing on a shared disk."""
        others = self.is_first_on_node and not self.is_first
        self.run_on_first(task, action)
        if self._has_other_nodes:
            self.run(task, lambda: action() if others else None)

    def run_on_each_node(self, task: str, action: Callable[[], None]) -> None:
        """Runs an action on the first rank of each node."""
        self.run(task, lambda: action() if self.is_first_on_node else None)


@contextmanager
def others_awaited(call: str, after_s: float = _LONG_WAIT_S) -> Iterator[None]:
    """Warns if the block takes long, which is usually because only some ranks make this call."""
    message = (
        f"{call} has waited for the other ranks for {after_s:g} s. All ranks have to call it: if the call is in "
        "`if accelerator.is_main_process:`, move it out of the block."
    )
    with long_wait_noticed(message, after_s):
        yield


@contextmanager
def long_wait_noticed(message: str, after_s: float) -> Iterator[None]:
    """Warns if the block takes longer than `after_s` seconds."""
    timer = threading.Timer(after_s, _log.warning, (message,), {"main_process_only": False})
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _gather(task: str, text: str, *, from_first: bool = False) -> list[str]:
    """A `Gather` by a collective."""
    state = PartialState()
    if not state.use_distributed:
        return [text]
    state.compare_calls(task)
    if not from_first:
        return state.communicator.all_gather_objects(text)
    sent = bytearray(text.encode()[:_LONGEST].ljust(_LONGEST, _PADDING))
    found = of_first(torch.frombuffer(sent, dtype=torch.uint8))
    return [bytes(found.tolist()).rstrip(_PADDING).decode(errors="ignore")]


def alone(task: str, text: str, *, from_first: bool = False) -> list[str]:
    """A `Gather` of a rank that waits for no other."""
    del task, from_first
    return [text]


class GatheredTexts:
    """Sends a text of each rank to all; `gather` is a `Gather`, for one thread at a time."""

    def __init__(self, messages: RankMessages) -> None:
        self._messages = messages
        self._changed = threading.Condition()
        self._number = 0
        self._texts: defaultdict[int, dict[int, str]] = defaultdict(dict)
        """By the number of the exchange, and by rank."""
        messages.on(_TOPIC, self._receive)

    def gather(self, task: str, text: str, *, from_first: bool = False) -> list[str]:
        """Waits for the text of each rank, or of rank 0 alone.

        Raises:
            CheckpointError: Another rank has ended.
        """
        del task
        number, self._number = self._number, self._number + 1
        senders = {0} if from_first else set(range(self._messages.size))
        if self._messages.rank in senders:
            self._messages.send(_TOPIC, [number, text])
        with self._changed:
            found = self._texts[number]
            if self._messages.rank in senders:
                found[self._messages.rank] = text
            while missing := senders - set(found):
                if ended := [rank for rank in missing if self._messages.has_ended(rank)]:
                    raise CheckpointError(f"rank {ended[0]} has ended")
                self._changed.wait(LOOK_INTERVAL)
            del self._texts[number]
        return [text for _, text in sorted(found.items())]

    def _receive(self, rank: int, message: Any) -> None:
        number, text = message
        with self._changed:
            self._texts[number][rank] = text
            self._changed.notify_all()
