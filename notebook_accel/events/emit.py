"""Emits events from code that does not know how its rank was launched; the rank sets the sink that receives them."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol, TypeVar

from notebook_accel import rank_local
from notebook_accel.events.base import Event
from notebook_accel.events.control import TunableChanged
from notebook_accel.events.ranks import InputRequested, Metrics, NameRequested, Saving, StepTimes
from notebook_accel.events.requests import Answer, NameAnswered

MetricsSink = Callable[[dict[str, float], "int | None"], None]
_Answer = TypeVar("_Answer", bound=Event)

METRICS_SINK = f"{__name__}.metrics_sink"
"""The key in `rank_local.space()` of the function that receives metrics: `(values, step)`, as in the event `Metrics`.

The function owns `values` from then on. Loops report at every step, and creating an event takes longer than everything
else in a report, so `report` calls the function itself; even one call in between would be measurable.
"""
TRAINING_STEP = f"{__name__}.training_step"
"""The key in `rank_local.space()` of the number of steps that a resumable training has done, if one runs.

A failure is reported with it. Loops set it at every step, so they do so themselves.
"""
PREEMPTED_BY = f"{__name__}.preempted_by"
"""The key of what ends the training on this rank, as text; set while it runs, and looked at after each step."""
STEP_TIMES = f"{__name__}.step_times"
"""The key of the clock of the rank's training steps, a `StepClock`, once there is one."""
STEP_CONTROL = f"{__name__}.step_control"
"""The key of what pauses and changes the training on this rank, a `StepControl`; without one, nothing can."""
_SINK = f"{__name__}.sink"
_WAIT = f"{__name__}.wait_until_sent"
_DRAWS = f"{__name__}.draws"
_ANSWERS = f"{__name__}.answers"


def set_sink(
    sink: Callable[[Event], None] | None,
    metrics: MetricsSink | None = None,
    control: StepControl | None = None,
    wait_until_sent: Callable[[], None] = lambda: None,
) -> None:
    """Sets the function that receives each event emitted on this rank, on the thread that emits it; `None` removes it.

    Args:
        sink: Called with each event.
        metrics: Receives metrics in place of `sink`; see `METRICS_SINK`.
        control: Pauses and changes the training on this rank.
        wait_until_sent: Returns once what the sink has received has been sent.
    """
    if metrics is None and sink is not None:
        metrics = _as_events(sink)
    rank_local.space().update({_SINK: sink, METRICS_SINK: metrics, STEP_CONTROL: control, _WAIT: wait_until_sent})


class StepClock(Protocol):
    """Measures training steps, and emits `StepTimes` now and then."""

    def times(self) -> StepTimes | None: ...

    def restart(self) -> None: ...

    def count_sample(self, where: str, source: str) -> None:
        """Counts a sample of the main thread's stack on this line of the user's code, for the part that it is in."""

    def count_unpickling(self) -> None:
        """Counts a sample in which the main thread unpickled what loader workers had sent."""

    def part_name(self) -> str:
        """The part of a step that the rank is in."""

    def skip(self) -> None:
        """Leaves out the time since the last part ended, for which the training was paused."""


class ControlledLoop(Protocol):
    """The loop over `Accelerator.epochs`, as the controls use it on the thread that trains."""

    count: int
    """The number of epochs."""

    @property
    def refusals(self) -> Mapping[str, str]:
        """Why it can't do what the controls want, by action, where it can't."""

    def request_checkpoint(self, then: Callable[[str, str], None]) -> None:
        """Saves a checkpoint soon, after the same step on all ranks; calls back with its path, and with an error."""

    def end_after_epoch(self) -> str:
        """Ends the loop after the current epoch. Returns a description of it, such as `epoch 3 of 10`."""

    def must_run(self) -> bool:
        """Whether a pause must end, because the training has to save a checkpoint and end."""


class ControlledTunable(Protocol):
    """A value that can be changed while the training runs, as the controls use it."""

    @property
    def state(self) -> TunableChanged: ...

    def refusal(self, value: float) -> str:
        """Why it can't have this value; empty if it can."""

    def set(self, value: float) -> None:
        """Changes it, on the thread that trains. Raises what the user's function raises."""

    def restore(self, value: float) -> None:
        """Changes it back, without a call of the user's function."""


class StepControl(Protocol):
    """Pauses and changes the training on one rank, between two steps. Its own thread trains."""

    loop: ControlledLoop | None

    @property
    def is_paused(self) -> bool: ...

    @property
    def paused_seconds(self) -> float:
        """How long the training has been paused in this call, all in all."""

    def attach(self, refusal: str) -> None:
        """Records that prepared optimizers step here; `refusal`: why it can't be controlled nonetheless."""

    def add(self, tunable: ControlledTunable) -> None: ...

    def on_step(self, optimizer: object) -> None:
        """An optimizer has stepped. Here the training waits, and is changed, if that is wanted."""

    def refresh(self) -> None:
        """The loop or what it can do has changed."""


def last_step_times() -> list[Event]:
    """What the steps of the call that ends here have taken, if it had any; the next call starts from zero."""
    clock = step_clock()
    if clock is None:
        return []
    found = clock.times()
    clock.restart()
    return [] if found is None else [found]


def step_part() -> str:
    """The part of a training step that this rank is in; empty if it measures no steps."""
    clock = step_clock()
    return "" if clock is None else clock.part_name()


def _as_events(sink: Callable[[Event], None]) -> MetricsSink:
    return lambda values, step: sink(Metrics(values, step))


def step_clock() -> StepClock | None:
    """The clock of the rank's training steps, if it has one already."""
    found: StepClock | None = rank_local.space().get(STEP_TIMES)
    return found


def step_control() -> StepControl | None:
    """What pauses and changes the training on this rank; `None` outside a launch."""
    found: StepControl | None = rank_local.space().get(STEP_CONTROL)
    return found


def training_is_paused() -> bool:
    """Whether the training on this rank waits until the user resumes it, so that no step ends."""
    control = step_control()
    return control is not None and control.is_paused


def training_step() -> int | None:
    """How many steps the resumable training on this rank has done; `None` if none runs."""
    found: int | None = rank_local.space().get(TRAINING_STEP)
    return found


def has_sink() -> bool:
    """Whether a sink is set, for callers whose events are expensive to create."""
    return rank_local.space().get(_SINK) is not None


def draw_here() -> None:
    """Has this rank draw its bars and figures itself, since what it writes goes to no view."""
    rank_local.space()[_DRAWS] = True


def is_drawn() -> bool:
    """Whether bars and figures are drawn elsewhere from events, instead of by this rank itself."""
    return has_sink() and not rank_local.space().get(_DRAWS)


def emit(event: Event) -> None:
    """Passes an event to the sink; does nothing without one."""
    sink = rank_local.space().get(_SINK)
    if sink is not None:
        sink(event)


def emit_now(event: Event) -> None:
    """Passes an event to the sink, and returns once it has been sent, so that it arrives even if this process dies.

    So do all metrics and bars of this rank from before.
    """
    emit(event)
    wait_until_sent = rank_local.space().get(_WAIT)
    if wait_until_sent is not None:
        wait_until_sent()


@contextmanager
def saving() -> Iterator[None]:
    """Tells the job that the training waits for a checkpoint to be saved."""
    emit(Saving(True))
    try:
        yield
    finally:
        emit(Saving(False))


def answers(kind: type[_Answer]) -> queue.SimpleQueue[_Answer]:
    """The queue of answers of a kind to what this rank has requested, filled by the thread that reads its channel."""
    found: queue.SimpleQueue[_Answer] = rank_local.space().setdefault(f"{_ANSWERS}.{kind.kind}", queue.SimpleQueue())
    return found


def request_input(output: str, prompt: str, *, hidden: bool = False) -> str | None:
    """Requests a line of input from the user and waits for it; `None` where no user is connected.

    Args:
        output: What was written since the last request, to be shown above the prompt.
        prompt: The prompt.
        hidden: Whether what the user types isn't shown, as a password.
    """
    found = _request(InputRequested(output, prompt, hidden), Answer)
    return None if found is None else found.text


def request_name(name: str) -> NameAnswered | None:
    """Requests what the notebook has under a name, and waits for it; `None` where no notebook is connected.

    One thread of a rank may request at a time.
    """
    return _request(NameRequested(name), NameAnswered)


def _request(event: Event, kind: type[_Answer]) -> _Answer | None:
    pending = answers(kind)
    while not pending.empty():
        pending.get()  # the answer to an earlier request, which an interrupt ended before the answer came
    if (
        not has_sink()
    ):  # checked only now: the thread that removes the sink answers afterwards, and that answer must not be dropped
        return None
    emit(event)
    return pending.get()
