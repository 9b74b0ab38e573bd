"""`rehearse`: runs a few real steps in ranks that are thrown away, to show what fits, and how fast it is."""

from __future__ import annotations

import html
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from notebook_accel.config import kinds
from notebook_accel.config.call_arguments import check_call, name_of
from notebook_accel.config.resolve import resolve
from notebook_accel.errors import ConfigurationError, RankError
from notebook_accel.insight import comparison, pictures
from notebook_accel.insight.frames import dataframe
from notebook_accel.launch.driver import launcher
from notebook_accel.launch.driver.launcher import BACKGROUND
from notebook_accel.launch.job import rank_error, rules, text
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.show import console
from notebook_accel.launch.show.console import Unseen
from notebook_accel.rank_spans import counted
from notebook_accel.rehearsal_flag import VARIABLE
from notebook_accel.runs import search
from notebook_accel.runs.rehearsed_call import Measured, RehearsedCall
from notebook_accel.runs.scaling import to_its_end
from notebook_accel.runs.sweep import check_option, check_parameters
from notebook_accel.runs.trial import in_words, shown

if TYPE_CHECKING:
    from pandas import DataFrame

_WAITING = 0.3
"""The least part of a step from which on waiting for the loader is worth a sentence."""


@dataclass(frozen=True)
class Largest:
    """Values to find the largest of that fits; made by `largest`."""

    name: str
    up_to: int
    at_least: int

    def after(self, known: Mapping[int, bool]) -> int | None:
        """The value to try next, given whether those before have fitted; `None` once the largest is known."""
        fits = max((value for value, fitted in known.items() if fitted), default=0)
        fails = min((value for value, fitted in known.items() if not fitted), default=None)
        if not known:
            return self.at_least
        if fails is None:
            return min(2 * fits, self.up_to) if fits < self.up_to else None
        if not fits or fails - fits <= max(1, fits // 8):
            return None
        return (fits + fails) // 2


def largest(name: str, up_to: int, at_least: int = 1) -> Largest:
    """For `rehearse`: finds the largest value of an argument that fits into memory, such as a batch size.

    Doubles the value until memory runs out, and then bisects until the answer is within an eighth.

    Args:
        name: The argument of the function.
        up_to: The largest value to try.
        at_least: The first value to try.

    Raises:
        ConfigurationError: The numbers are not in order, or not whole numbers above 0.
    """
    if not isinstance(name, str):
        raise ConfigurationError(f"largest() takes the name of an argument, such as 'batch_size', not {name!r:.80}")
    up_to = kinds.integer(1).check("up_to", up_to)
    at_least = kinds.integer(1, up_to).check("at_least", at_least)
    return Largest(name, up_to, at_least)


@dataclass(frozen=True)
class Rehearsed:
    """What one set of arguments has come to; what is not known is `None`."""

    parameters: Mapping[str, Any]
    fits: bool
    """Whether the memory was enough."""
    step: float | None = None
    """Seconds of a step, without those that warm up: the mean of the ranks."""
    samples_per_second: float | None = None
    """Of all ranks together; `None` unless the loader is prepared, with batches of a fixed size."""
    device_peak: int | None = None
    """The most bytes that a rank has reserved on its GPU."""
    device_total: int | None = None
    device_phase: str = ""
    """In which phase of a step the most was in use, if that is known."""
    host_peak: int | None = None
    """The most bytes of memory of one rank's process."""
    host_phase: str = ""
    epoch: float | None = None
    """Seconds of an epoch, by the length of the prepared loader, or of the innermost bar."""
    run: float | None = None
    """Seconds of all epochs, by the lengths of the loops around it."""
    data: float | None = None
    """The part of a step that waits for the loader, from 0 to 1."""
    note: str = ""
    """Why it does not fit, or what else to know."""

    @property
    def room(self) -> int | None:
        """The bytes of its GPU that a rank leaves free."""
        return None if self.device_peak is None or self.device_total is None else self.device_total - self.device_peak


def rehearse(
    function: Callable[..., Any],
    *,
    steps: int = 5,
    vary: Mapping[str, Sequence[Any]] | Largest | None = None,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    **options: Any,
) -> Rehearsal:
    """Runs a few training steps of a function in ranks of their own, to show what fits into memory, and how fast it is.

    The function is called as in a launch, and ended once an optimizer has made these steps, and those before them that
    warm up: the first, and those whose batches the workers of a prepared loader have read ahead by then. Running out of
    memory is a result, not an error. Nothing stays in the notebook's process or on the devices. Nothing is written: the
    methods of `Accelerator` that save, its trackers, and `checkpoint=` have no effect, and other code can check
    `rehearsing()`. Nor have `rules=`.

    Args:
        function: What to rehearse: a function that trains.
        steps: How many steps to measure.
        vary: Arguments to try, in all combinations: `{"batch_size": [8, 16, 32]}`; or what `largest` returns.
        args: The positional arguments of the function.
        kwargs: Its keyword arguments.
        options: Further arguments of `notebook_launcher`.

    Returns:
        A table with a `verdict` in words, and `rows`.

    Raises:
        ConfigurationError: An argument can't be used.
        RankError: A rank failed for a reason other than memory.
        KeyboardInterrupt: The notebook was interrupted.
    """
    for name in options:
        check_option(name, function, rehearse)
    rules.check(options.pop("rules", None))
    steps = kinds.integer(1, 1000).check("steps", steps)
    call = check_call(function, args, kwargs)
    known = [{}] if vary is None else [{vary.name: vary.at_least}] if isinstance(vary, Largest) else _grid(vary)
    for each in known:
        check_parameters(call, each)
    settings = resolve({**options, "env": {**(options.get("env") or {}), VARIABLE: "1"}})
    settings = replace(settings, checkpoint_dir="", max_restarts=0, min_processes=None)
    title = text.title(name_of(function))
    stage, rows = _Stage(title), list[Rehearsed]()
    try:
        while (parameters := _after(rows, vary, known)) is not None:
            stage.show(parameters)
            with console.using(Unseen(console.current)):
                rehearsed = RehearsedCall(function, steps), call[1], {**call[2], **parameters}
                job = launcher.launch(settings, rehearsed, BACKGROUND, part_of=f"rehearsal in {os.getpid()}")
            rows.append(_result(job, parameters, steps))
    finally:
        stage.end()
    if isinstance(vary, Largest):
        rows.sort(key=lambda row: int(row.parameters[vary.name]))
    return Rehearsal(title, rows)


def _grid(vary: Any) -> Sequence[Mapping[str, Any]]:
    return search.make(vary, None, 0, None).known or ()


def _after(rows: Sequence[Rehearsed], vary: Any, known: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The arguments to rehearse after these; `None` if there are no more."""
    if isinstance(vary, Largest):
        value = vary.after({row.parameters[vary.name]: row.fits for row in rows})
        return None if value is None else {vary.name: value}
    return known[len(rows)] if len(rows) < len(known) else None


class _Stage:
    """Says what is rehearsed now, in an output that is empty afterwards."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._id = f"notebook-accel-rehearsal-{os.urandom(6).hex()}"
        self._is_shown = False

    def show(self, parameters: Mapping[str, Any]) -> None:
        self._say(f"rehearsing {self._title}" + (f" with {in_words(parameters)}" if parameters else ""))

    def end(self) -> None:
        if self._is_shown:
            self._say("")

    def _say(self, words: str) -> None:
        if console.current.updates_displays:
            console.current.display({"text/plain": words}, {}, self._id, update=self._is_shown)
            self._is_shown = True


def _result(job: Job, parameters: Mapping[str, Any], steps: int) -> Rehearsed:
    try:
        values: list[Measured] = to_its_end(job)
    except RankError:
        if not (why := _out_of_memory(job)):
            raise
        most = comparison.measures_of(job).memory
        return Rehearsed(parameters, False, host_peak=most, host_phase=_host_phase(job), note=why)
    first = values[0]
    means = [each.step for each in values if each.step is not None]
    step = sum(means) / len(means) if means else None
    measures = comparison.measures_of(job)
    whole = sum(measures.parts.values())
    on_device = max((each for each in values if each.device_peak), key=lambda each: each.device_peak or 0, default=None)
    epoch = None if step is None or first.epoch is None else step * first.epoch
    return Rehearsed(
        parameters,
        True,
        step=step,
        samples_per_second=measures.samples_per_second,
        device_peak=None if on_device is None else on_device.device_peak,
        device_total=None if on_device is None else on_device.device_total,
        device_phase=_phase([state.peaks.device for state in job.ranks if state.peaks is not None]),
        host_peak=max(each.host_peak for each in values),
        host_phase=_host_phase(job),
        epoch=epoch,
        run=None if epoch is None else epoch * first.epochs,
        data=measures.parts["data"] / whole if whole else None,
        note=_note(first, steps),
    )


def _note(found: Measured, steps: int) -> str:
    made = len(found.steps)
    if not made:
        return "no optimizer of torch made a step, so only the memory is known"
    measured = made - found.warm_up
    if measured <= 0:
        warm_up = "one step, which warms up" if made == 1 else f"{made} steps, which warm up"
        return f"the function returned after {warm_up}, so its time is not known"
    return (
        f"the function returned after {counted(measured, 'measured step')}"
        if found.finished and measured < steps
        else ""
    )


def _host_phase(job: Job) -> str:
    return _phase([state.peaks.resident for state in job.ranks if state.peaks is not None])


def _phase(peaks: Sequence[Mapping[str, int]]) -> str:
    """The phase in which a rank was seen to use the most; empty if that is not known."""
    found = [(most, phase) for each in peaks for phase, most in each.items()]
    return max(found)[1] if found else ""


def _out_of_memory(job: Job) -> str:
    """That the memory ran out, and where; empty if a job failed for another reason."""
    for state in job.ranks:
        if state.failed is not None and state.failed.out_of_memory is not None:
            return state.failed.chain[-1].headline if state.failed.chain else "out of memory"
    killed = job.outcome is not None and rank_error.OUT_OF_MEMORY in job.outcome.error
    return "the system ended a rank, because its memory ran out" if killed else ""


class Rehearsal:
    """What was rehearsed. A notebook shows it as a table, `print` as text."""

    def __init__(self, title: str, rows: Sequence[Rehearsed]) -> None:
        self.rows = list(rows)
        """What each set of arguments has come to."""
        self._title = title

    @property
    def verdict(self) -> str:
        """What fits, and what is fastest, in a few words."""
        return f"{self._title}: {'; '.join(self._facts())}"

    def _facts(self) -> Iterator[str]:
        fitting, failed = ([row for row in self.rows if row.fits is fits] for fits in (True, False))
        if len(self.rows) == 1:
            yield "it fits" if fitting else "it runs out of memory"
        else:
            yield f"fits: {_names(fitting)}" if fitting else "nothing fits"
            if failed and fitting:
                yield f"out of memory: {_names(failed)}"
        rated = [(row.samples_per_second, row) for row in fitting if row.samples_per_second]
        if len(rated) > 1:
            rate, best = max(rated, key=lambda each: each[0])
            yield f"fastest: {in_words(best.parameters)}, {text.value(rate)} samples per second"
        last = fitting[-1] if fitting else None
        if last is not None and last.room is not None and last.device_total is not None:
            name = in_words(last.parameters) or "it"
            yield f"{name} leaves {text.size(last.room)} of {text.size(last.device_total)}"
        if last is not None and last.data is not None and last.data >= _WAITING:
            yield f"{text.percent(last.data)} of a step waits for the loader"

    def dataframe(self) -> DataFrame | list[dict[str, Any]]:
        """One row for each set of arguments, in seconds and bytes.

        A DataFrame if pandas is installed, otherwise a list of dicts.
        """
        rows = [
            {**row.parameters, **{name: value for name, value in vars(row).items() if name != "parameters"}}
            for row in self.rows
        ]
        return dataframe(rows)

    def _table(self) -> tuple[list[str], list[list[str]]]:
        """The titles of the columns, and the cells; columns that are empty everywhere are left out."""
        names = list(dict.fromkeys(name for row in self.rows for name in row.parameters))
        head = [*names, "", *_COLUMNS]
        rows = [
            [
                *(shown(row.parameters[name]) for name in names),
                "fits" if row.fits else "out of memory",
                *(show(row) for show in _COLUMNS.values()),
            ]
            for row in self.rows
        ]
        used = [index for index, _ in enumerate(head) if any(row[index] for row in rows)]
        return [head[index] or "memory" for index in used], [[row[index] for index in used] for row in rows]

    def __repr__(self) -> str:
        head, rows = self._table()
        return "\n".join([self.verdict, *text.aligned([head, *rows])])

    def _repr_html_(self) -> str:
        head, rows = self._table()
        cells = [[html.escape(cell) for cell in row] for row in rows]
        return pictures.picture(self.verdict, (), pictures.table(cells, head))


def _names(rows: Sequence[Rehearsed]) -> str:
    return ", ".join(in_words(row.parameters) for row in rows)


def _bytes(value: int | None, phase: str = "") -> str:
    return "" if value is None else text.size(value) + (f" in {phase}" if phase else "")


def _in_seconds(value: float | None) -> str:
    return "" if value is None else text.duration(value)


_COLUMNS: Mapping[str, Callable[[Rehearsed], str]] = {
    "GPU, at most": lambda row: _bytes(row.device_peak, row.device_phase),
    "left": lambda row: _bytes(row.room),
    "host, at most": lambda row: _bytes(row.host_peak, row.host_phase),
    "step": lambda row: "" if row.step is None else f"{text.value(1e3 * row.step)} ms",
    "samples/s": lambda row: "" if row.samples_per_second is None else text.value(row.samples_per_second),
    "epoch": lambda row: _in_seconds(row.epoch),
    "run": lambda row: _in_seconds(row.run),
    "note": lambda row: text.shortened(row.note, 120),
}
