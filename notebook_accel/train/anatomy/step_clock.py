"""The clock of a rank's training steps: adds up, without a lock or an allocation, how long each part takes.

At any moment the rank is in one part. Code that enters another one calls `enter`, so the parts never overlap and always
add up to the whole; what no part claims is the rest. A step ends with `step` of its optimizer.
"""

from __future__ import annotations

import contextlib
import os
import resource
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from notebook_accel import events, rank_local
from notebook_accel.counted_optimizer import CountedOptimizer
from notebook_accel.events import HotLine, StepTimes
from notebook_accel.events.emit import STEP_TIMES
from notebook_accel.train.anatomy import unused_parameters

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
            unused_search=unused_parameters.searched_in_vain(),
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
