"""What each training step of a rank spends its time on, measured while it runs, without a lock or an allocation.

At any moment the rank is in one part of a step. Code that enters another one calls `enter`, so the parts never overlap
and always add up to the whole; what no part claims is the rest. A step ends with `step` of its optimizer. The clock is
an observer of steps. `MeasuredCall` and `MeasuredTransfer` mark what has no observers: forward passes, and copies of
batches to the device.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import resource
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from notebook_accel import events, rank_local
from notebook_accel.events import HotLine, StepTimes
from notebook_accel.events.control import CountedOptimizer
from notebook_accel.events.emit import STEP_TIMES
from notebook_accel.train.models.compiling import CallInPlace

PARTS = ("rest", "data", "copy", "forward", "backward", "sync", "optimizer")
"""The parts of a step; what follows are their indices."""
REST, DATA, COPY, FORWARD, BACKWARD, SYNC, OPTIMIZER = range(len(PARTS))

REPORT_SECONDS = 1.0
"""Seconds between two reports."""
_LEAST_SAMPLES = 6
"""Fewer samples of a part don't tell which of its lines takes the time."""
_NAMED = (REST, DATA, FORWARD)
"""The parts whose hottest line is reported: in the others, it is always the line of the call."""


class LoaderFacts:
    """What the clock knows of a prepared loader whose batches are used."""

    __slots__ = ("rows", "workers")

    def __init__(self, loader: Any) -> None:
        self.rows = (loader._total_batch_size or 0) // loader.num_processes
        """The samples in one of this rank's batches; 0 if their number is not fixed."""
        self.workers = int(getattr(loader.base_dataloader, "num_workers", 0))
        """Its worker processes."""


class StepClock:
    """Measures with the CPU's clock.

    The first step is left out: it allocates memory, starts workers and compiles.
    """

    device = "cpu"

    def __init__(self) -> None:
        self.part = REST
        self.loader: LoaderFacts | None = None
        """The loader of the latest batch."""
        self._hook: Any = None
        """That on the loss, while a backward pass runs that synchronizes gradients."""
        self._threads = 1
        self._cores = _cores()
        self._local_ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        self.restart()

    def restart(self) -> None:
        """Forgets what was measured: another call begins."""
        self.part = REST
        self.backwards = self.syncs = self.rows = 0
        self._sums = [0] * len(PARTS)
        self._steps = -1
        self._done: tuple[Any, ...] | None = None
        self._counted = CountedOptimizer()
        self._since = time.perf_counter_ns()
        self._due = self._since
        self._core_wait = 0.0
        self._first_fault = 0
        self._samples = Counter[tuple[int, str, str]]()
        self._unpickling = 0

    def count_sample(self, where: str, source: str) -> None:
        """Counts a sample of the stack, which another thread has taken, on a line of the user's code."""
        self._samples[self.part, where, source] += 1

    def count_unpickling(self) -> None:
        """Counts a sample in which the rank unpickled a batch of its loader's workers."""
        self._unpickling += self.part == DATA

    def part_name(self) -> str:
        """The part that the rank is in. Any thread may call it."""
        return PARTS[self.part]

    def enter(self, part: int) -> None:
        """Begins a part, which ends the previous one."""
        now = time.perf_counter_ns()
        self._sums[self.part] += now - self._since
        self._since = now
        self.part = part

    # As an observer of steps

    def batches(self, loader: Any, batches: Iterator[Any]) -> Iterator[Any]:
        """Yields the batches of a prepared loader; the time that each takes is a wait for data."""
        facts = LoaderFacts(loader)
        enter = self.enter
        enter(DATA)
        try:
            for batch in batches:
                self.loader = facts
                enter(REST)
                yield batch
                enter(DATA)
        finally:
            enter(REST)

    def before_backward(self, loss: torch.Tensor, is_synced: Callable[[], bool]) -> None:
        """Counts and measures a backward pass, and apart from it the wait for other ranks' gradients at its end.

        DDP and FSDP wait in a callback that the autograd engine runs when all gradients are computed. Such callbacks
        run in the order in which they were added, so one that is added first marks the end of the computation.
        """
        synchronizes = is_synced()
        self.backwards += 1
        self.syncs += synchronizes
        if self.loader is not None:
            self.rows += self.loader.rows
        if synchronizes and loss.requires_grad:
            self._hook = loss.register_hook(_on_gradient)  # type: ignore[no-untyped-call]
        self.enter(BACKWARD)

    def after_backward(self, has_ended: bool) -> None:
        self.enter(REST)
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def before_step(self) -> None:
        self.enter(OPTIMIZER)

    def after_step(self, optimizer: object) -> None:
        """Ends the part, and the step if the loop is counted by this optimizer."""
        self.enter(REST)
        if not self._counted.ends_step(optimizer):
            return
        self._steps += 1
        if self._steps:
            self._complete()
        else:
            self._begin()
        now = self._now()
        if now >= self._due:
            self._due = now + int(REPORT_SECONDS * 1e9)
            self._report()

    def skip(self) -> None:
        """Leaves out the time since the last part ended, for which the training was paused."""
        self._since = time.perf_counter_ns()

    def _now(self) -> int:
        return self._since  # which `enter` has just set

    def _begin(self) -> None:
        """The first step is over, and the measurement begins."""
        self._sums[:] = [0] * len(PARTS)
        self.backwards = self.syncs = self.rows = 0
        self._core_wait = _waited_for_core()
        self._first_fault = _major_faults()
        self._threads = torch.get_num_threads()
        self._samples.clear()
        self._unpickling = 0

    def _complete(self) -> None:
        """A step is over; what is reported is always a whole number of steps."""
        self._done = (self._steps, self._steps, self.rows, self.backwards, self.syncs, *self._sums)

    def _report(self) -> None:
        found = self.times()
        if found is not None:
            events.emit(found)

    def times(self) -> StepTimes | None:
        """The sums so far; `None` before the second step has ended. Any thread may call it."""
        if self._done is None:
            return None
        steps, measured, rows, backwards, syncs, *sums = self._done
        samples = list(self._samples.items())  # at once: another thread may add one
        waiting = sum(count for (part, _, _), count in samples if part == DATA)
        return StepTimes(
            {name: nanoseconds / 1e9 for name, nanoseconds in zip(PARTS, sums, strict=True)},
            steps=steps,
            measured=measured,
            samples=rows,
            backwards=backwards,
            syncs=syncs,
            device=self.device,
            workers=None if self.loader is None else self.loader.workers,
            threads=self._threads,
            cores=self._cores,
            local_ranks=self._local_ranks,
            core_wait=max(0.0, _waited_for_core() - self._core_wait),
            lines=[line for part in _NAMED if (line := _hottest(part, samples)) is not None],
            unpickling=self._unpickling / waiting if waiting >= _LEAST_SAMPLES else 0.0,
            unused_search=_searched_in_vain(),
            swapped_pages=_pages_from_swap(self._first_fault),
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return current, ()  # that of the rank that unpickles it


def _on_gradient(_: torch.Tensor) -> None:
    torch.autograd.Variable._execution_engine.queue_callback(_on_computed)


def _on_computed() -> None:
    clock = current()
    if clock is not None:
        clock.enter(SYNC)


def current() -> StepClock | None:
    """The clock of this rank, if it has one already."""
    found: StepClock | None = rank_local.space().get(STEP_TIMES)
    return found


def _hottest(part: int, samples: Sequence[tuple[tuple[int, str, str], int]]) -> HotLine | None:
    """The line of a part that has the most samples; `None` if there are too few."""
    found = {(where, source): count for (of, where, source), count in samples if of == part}
    total = sum(found.values())
    if total < _LEAST_SAMPLES:
        return None
    where, source = max(found, key=lambda line: found[line])
    return HotLine(PARTS[part], where, source, found[where, source] / total)


def _major_faults() -> int:
    """How many pages this process has had to read from a disk."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_majflt


def _pages_from_swap(before: int) -> int:
    """The pages read since then, if part of this process's memory is swapped out: otherwise they come from files."""
    faults = _major_faults() - before
    return faults if faults and _swapped() else 0


def _swapped() -> bool:
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmSwap:"):
                return int(line.split()[1]) > 0
    return False


def _cores() -> int:
    """The CPU cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS
        return os.cpu_count() or 1


def _waited_for_core() -> float:
    """Seconds for which the main thread was ready to run and had no core; 0 where the system does not count them."""
    try:
        return int(Path("/proc/self/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


_EVERY = 8
"""One of this many steps is measured, since recording its events takes some 20 µs."""
_FIRST = 16
"""This many steps at the beginning are all measured."""
_MOST_UNREAD = 32
"""Steps whose events the device has not passed yet; of more, the oldest are dropped."""

Mark = tuple[int, Any]
"""A part that ended, and the event at its end."""


class DeviceClock(StepClock):
    """Measures with events on the current stream of a CUDA device, read once the device has passed them.

    Python only queues work for the device, so the CPU's clock would show where it waits rather than what the device
    does. Between two events lies what the device did, and for how long it had nothing to do, while Python was in that
    part. It never waits for an event.

    Args:
        device: The CUDA device.
    """

    device = "cuda"

    def __init__(self, device: torch.device) -> None:
        self._on = device
        super().__init__()

    def restart(self) -> None:
        super().restart()
        self._marks: list[Mark] | None = None
        """The marks of the step that is measured; `None` in one that is not."""
        self._unread: deque[tuple[list[Mark], int, int, int]] = deque()
        self._spare: list[Any] = []
        self._measured = self._rows_read = self._backwards_read = self._syncs_read = 0

    def enter(self, part: int) -> None:
        if self._marks is not None:
            self._marks.append((self.part, self._recorded()))
        self.part = part

    def skip(self) -> None:
        if self._marks is not None:
            self._spare += [event for _, event in self._marks]
            self._marks = [(REST, self._recorded())]

    def _now(self) -> int:
        return time.perf_counter_ns()

    def _recorded(self) -> Any:
        event = self._spare.pop() if self._spare else self._new_event()
        event.record(torch.cuda.current_stream(self._on))
        return event

    def _new_event(self) -> Any:
        return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]

    def _begin(self) -> None:
        super()._begin()
        self._marks = [(REST, self._recorded())]

    def _complete(self) -> None:
        if self._marks is not None:
            self._unread.append((self._marks, self.rows, self.backwards, self.syncs))
            if len(self._unread) > _MOST_UNREAD:
                self._spare += [event for _, event in self._unread.popleft()[0]]
        self.rows = self.backwards = self.syncs = 0
        self._read()
        is_next = self._steps < _FIRST or self._steps % _EVERY == 0
        self._marks = [(REST, self._recorded())] if is_next else None

    def _read(self) -> None:
        """Adds up the steps that the device has finished."""
        while self._unread and self._unread[0][0][-1][1].query():
            marks, rows, backwards, syncs = self._unread.popleft()
            for (_, start), (part, end) in itertools.pairwise(marks):
                self._sums[part] += int(start.elapsed_time(end) * 1e6)
            self._spare += [event for _, event in marks]
            self._measured += 1
            self._rows_read += rows
            self._backwards_read += backwards
            self._syncs_read += syncs
        if self._measured:
            self._done = (
                self._steps,
                self._measured,
                self._rows_read,
                self._backwards_read,
                self._syncs_read,
                *self._sums,
            )


CLOCKS: dict[str, Callable[[torch.device], StepClock]] = {"cpu": lambda device: StepClock(), "cuda": DeviceClock}
"""By the type of the device. On others, only a wait would show what a part takes, so nothing is measured there."""


def of_this_rank(device: torch.device) -> StepClock | None:
    """The clock of this rank; `None` outside a launch, and on devices that have none.

    Args:
        device: The rank's device.
    """
    if not events.has_sink() or device.type not in CLOCKS:
        return None
    found = current()
    if found is None or found.device != device.type:
        found = rank_local.space()[STEP_TIMES] = CLOCKS[device.type](device)
    return found


class MeasuredTransfer:
    """A transfer of batches to the device, whose time is that of copies.

    Args:
        transfer: What moves the batches.
        clock: The rank's clock.
    """

    def __init__(self, transfer: Any, clock: StepClock) -> None:
        self._transfer = transfer
        self._enter = clock.enter

    def load(self, batch: Any) -> Any:
        self._enter(COPY)
        loaded = self._transfer.load(batch)
        self._enter(DATA)
        return loaded

    def deliver(self, batch: Any) -> Any:
        self._enter(COPY)
        delivered = self._transfer.deliver(batch)
        self._enter(DATA)
        return delivered


def watch_forward(model: nn.Module) -> None:
    """Measures the forward passes of a prepared model.

    Hooks would make each pass some 10 µs slower. What `Module.compile` sets instead is called in place of `forward` and
    all hooks, belongs to no state, and is left out where a module is pickled.
    """
    if not isinstance(model._compiled_call_impl, MeasuredCall):
        model.__dict__["_compiled_call_impl"] = MeasuredCall(model)


class MeasuredCall(CallInPlace):
    """Calls a model and measures its forward pass; can be pickled, since DDP pickles it too."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        call = self.given or self.module._call_impl
        clock = current()
        # A model within another is part of that one's pass, and an evaluation isn't part of a training step.
        if clock is None or clock.part == FORWARD or not torch.is_grad_enabled() or torch.compiler.is_compiling():
            return call(*args, **kwargs)
        clock.enter(FORWARD)
        try:
            return call(*args, **kwargs)
        finally:
            clock.enter(REST)


_MODELS = f"{__name__}.models"


def watch_unused_search(model: DistributedDataParallel) -> None:
    """Remembers a model that DDP searches, because `find_unused_parameters` is set."""
    rank_local.space().setdefault(_MODELS, weakref.WeakSet()).add(model)


def _searched_in_vain() -> bool:
    """Whether a model is searched, and no parameter of it was unused in the passes that DDP has logged so far."""
    models = rank_local.space().get(_MODELS, ())
    return any(_has_no_unused(model) for model in [*models])


def _has_no_unused(model: DistributedDataParallel) -> bool:
    # DDP logs some of the passes, the first ones among them; before that, there is no entry.
    logged: dict[str, Any] = model._get_ddp_logging_data()  # type: ignore[no-untyped-call]
    return logged.get("unused_parameter_size") == 0
