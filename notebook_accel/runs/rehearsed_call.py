"""What a rank of a rehearsal runs: the user's function, until an optimizer has made the steps that are wanted."""

from __future__ import annotations

import importlib
import math
import os
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from notebook_accel import events, rank_local
from notebook_accel.events.control import CountedOptimizer
from notebook_accel.events.emit import STEP_TIMES


@dataclass
class Measured:
    """What one rank has found, as it returns it to the driver."""

    steps: list[float] = field(default_factory=list)
    """When each step of the training ended, in seconds on the rank's clock."""
    warm_up: int = 1
    """How many of them warm up: the first, and those whose batches were read ahead while it ran."""
    finished: bool = False
    """Whether the function returned before there were enough of them."""
    epoch: float | None = None
    """The steps of an epoch, by the length of the innermost loader or bar; `None` if there is none with a length."""
    epochs: float = 1.0
    """How many of these there are, by the loops around it."""
    host_peak: int = 0
    """The most bytes of memory of the rank's process."""
    device_peak: int | None = None
    """The most bytes that torch has reserved on the rank's GPU; `None` without one."""
    device_total: int | None = None

    @property
    def step(self) -> float | None:
        """Seconds of a step after those that warm up; `None` if there was none."""
        count = len(self.steps) - self.warm_up
        return (self.steps[-1] - self.steps[self.warm_up - 1]) / count if count > 0 else None


class _EnoughStepsError(BaseException):
    """Ends the function. Not an `Exception`, which its own code may catch."""


@dataclass(frozen=True)
class RehearsedCall:
    """Calls a function, and ends it after the steps that warm up and those that are measured."""

    func: Callable[..., Any]
    """The function; called as in a partial, so that the job is named after it."""
    steps: int

    def __call__(self, *args: Any, **kwargs: Any) -> Measured:
        optimizers: Any = importlib.import_module("torch.optim.optimizer")
        found, counted = Measured(), CountedOptimizer()

        def on_step(optimizer: Any, *_: Any) -> None:
            if not counted.ends_step(optimizer):
                return
            if (cuda := _cuda()) is not None:
                cuda.synchronize()
            found.steps.append(time.perf_counter())
            if len(found.steps) == 1:
                found.warm_up += _steps_read_ahead()
            clock = rank_local.space().get(STEP_TIMES)
            if len(found.steps) == found.warm_up and clock is not None:
                clock.restart()  # at the end of the optimizer's step, which it therefore takes for its first
            if len(found.steps) >= found.warm_up + self.steps:
                _read_lengths(found)
                raise _EnoughStepsError

        hook = optimizers.register_optimizer_step_post_hook(on_step)
        try:
            self.func(*args, **kwargs)
            found.finished = True
        except _EnoughStepsError:
            pass
        finally:
            hook.remove()
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        found.host_peak = most if sys.platform == "darwin" else most * 1024
        if (cuda := _cuda()) is not None:
            device = int(os.environ.get("LOCAL_RANK", "0")) % cuda.device_count()
            found.device_peak = int(cuda.max_memory_reserved(device))
            found.device_total = int(cuda.get_device_properties(device).total_memory)
        return found


def _cuda() -> Any:
    """`torch.cuda` if this rank uses it."""
    cuda: Any = importlib.import_module("torch.cuda")
    return cuda if cuda.is_initialized() else None


def _read_lengths(found: Measured) -> None:
    """Reads how long the loops are that the training is in."""
    control = events.step_control()
    loop = None if control is None else control.loop
    outer = [] if loop is None else [float(loop.count)]
    bars = _bars()
    loader, accumulated = _loader()
    if loader is not None:
        found.epoch = loader / accumulated
        # A bar around the loader counts its batches, and one around `epochs()` the epochs.
        outer += [total for total, _ in bars if total != loader and total not in outer]
    elif bars:
        *around, (total, count) = bars
        found.epoch = total / max(1, round((count + 1) / len(found.steps)))  # the last step's own is not counted yet
        outer += [each for each, _ in around if each not in outer]
    for each in outer:
        found.epochs *= each


def _bars() -> list[tuple[float, float]]:
    """The lengths and the counts of tqdm's bars that are open, the outermost first."""
    std: Any = sys.modules.get("tqdm.std")
    opened = [] if std is None else [bar for bar in list(getattr(std.tqdm, "_instances", ())) if bar.total]
    return [(float(bar.total), float(bar.n)) for bar in sorted(opened, key=lambda bar: abs(bar.pos))]


def _steps_read_ahead() -> int:
    """For how many steps the workers of the prepared loader have batches at most: these don't wait for them."""
    loader = _loader_in_use()
    base = getattr(loader, "base_dataloader", None)
    count = int(getattr(base, "num_workers", 0)) * int(getattr(base, "prefetch_factor", None) or 0)
    batches, accumulated = _loader()
    return math.ceil((count if batches is None else min(count, batches)) / accumulated)


def _loader_in_use() -> Any:
    state = gradient_state()
    return None if state is None else state.active_dataloader


def gradient_state() -> Any:
    """What this rank knows of the loaders in use; `None` if it has no `Accelerator`."""
    module: Any = sys.modules.get("notebook_accel.train.ranks.gradient_state")
    return None if module is None else module.GradientState()


def _loader() -> tuple[int | None, int]:
    """The batches of the prepared loader in use, if their number is known; and how many of them make a step."""
    loader = _loader_in_use()
    try:
        return (None, 1) if loader is None else (len(loader), max(1, int(gradient_state().num_steps)))
    except TypeError:  # of an iterable dataset
        return None, 1
