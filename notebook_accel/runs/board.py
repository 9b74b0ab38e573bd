"""The board of a sweep: a row for each trial, redrawn in one output while they run; the last one stays in the notebook.

It is HTML without scripts, so that it looks the same in every front end, in a saved notebook, and in an exported page.
Where displays can't be updated, as in a terminal, each trial that has ended is a line.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence
from typing import Any

from notebook_accel.errors import ConfigurationError, closest
from notebook_accel.insight import pictures
from notebook_accel.insight.pictures import AMBER, BLUE, GREEN, RED, badge, div, element, lab_button, progress_bar
from notebook_accel.launch.job import progress, text
from notebook_accel.launch.job.headline import headline
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.metric_charts import better
from notebook_accel.launch.job.metric_text import metric_spark
from notebook_accel.launch.show import console
from notebook_accel.rank_spans import counted
from notebook_accel.runs.trial import State, Trial, shown

_INTERVAL = 0.25
"""The shortest time between two drawings, in seconds."""
_SHARE = 20
"""Between two drawings, at least so many times as long as one takes."""
_SPARK = 16
_MOST_LIVE = 40
"""The most rows while trials run: those that run, and the last ones that have ended."""
_MOST_OPEN = 60
"""The most rows that a board shows at the end without being unfolded."""
_MOST_PARAMETERS = 6


class Facts:
    """What is known about all trials together.

    Args:
        name: The function's name, as a title.
        trials: The trials.
        metric: The metric that they are compared by; `None` for the main one of those that they report.
        sign: 1 if greater values are better, -1 if lower ones are, 0 if that depends on the metric's name.
    """

    def __init__(self, name: str, trials: Sequence[Trial], metric: str | None, sign: int) -> None:
        self.name = name
        self.trials = trials
        self._metric = metric
        self._sign = sign

    @property
    def metric(self) -> str | None:
        """The metric that the trials are compared by; `None` while none is reported."""
        return self._metric or progress.main_metric(self.metrics)

    @property
    def metrics(self) -> list[str]:
        """The names of all metrics, in the order in which they are first known."""
        found: dict[str, None] = {}
        for trial in self.trials:
            found |= dict.fromkeys(trial.measured)
            if trial.state is State.RUNNING and trial.running_job is not None:
                found |= dict.fromkeys(trial.running_job.charts.names)
        return list(found)

    def unreported(self, metric: str | None) -> str:
        """Why there are no values of a metric; empty if there are some."""
        known = self.metrics
        if metric in known:
            return ""
        if not known:
            return "no trial has reported a metric; report(loss=0.1) in the function does"
        close = closest(str(metric), known)
        hint = f" (did you mean {close!r}?)" if close else ""
        return f"no trial has reported {metric!r}{hint}: there are {', '.join(known)}"

    def sign(self, metric: str) -> int:
        """1 if greater values of a metric are better, -1 if lower ones are, 0 if that is unknown."""
        return self._sign if self._sign and metric == self.metric else better(metric)

    def known_sign(self, metric: str) -> int:
        """The same, for what has to know it.

        Raises:
            ConfigurationError: It is unknown.
        """
        sign = self.sign(metric)
        if not sign:
            raise ConfigurationError(
                f"the name {metric!r} doesn't tell which values are good: pass goal='min' or goal='max'"
            )
        return sign

    def ranked(self, metric: str, sign: int) -> list[Trial]:
        """The trials whose last value of a metric counts, the best one first. One that isn't finite doesn't."""
        found = [
            trial
            for trial in self.trials
            if trial.state.counts and metric in trial.measured and math.isfinite(trial.measured[metric].last)
        ]
        return sorted(found, key=lambda trial: -sign * trial.measured[metric].last)

    @property
    def best(self) -> Trial | None:
        """The best trial so far, if that is known."""
        metric = self.metric
        if metric is None or not (sign := self.sign(metric)):
            return None
        return next(iter(self.ranked(metric, sign)), None)

    @property
    def headline(self) -> str:
        """`train() with 20 trials: 12 done, 2 running; best loss 0.12: trial 7, lr=0.001`."""
        counts = [(state, sum(trial.state is state for trial in self.trials)) for state in _ORDER]
        states = ", ".join(f"{count} {state.value}" for state, count in counts if count)
        words = f"{self.name} in {counted(len(self.trials), 'trial')}: {states}"
        best, metric = self.best, self.metric
        if best is None or metric is None:
            return words
        last = text.value(best.measured[metric].last)
        return f"{words}; best {metric} {last}: trial {best.number}, {best.label}"


_ORDER = (State.DONE, State.STOPPED, State.FAILED, State.CANCELLED, State.RUNNING, State.WAITING)


class Board:
    """Draws the trials below the cell.

    Args:
        facts: What to draw.
    """

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self._rows: dict[int, list[str]] = {}
        """The rows of trials that have ended."""
        self._id = f"notebook-accel-sweep-{os.urandom(6).hex()}"
        self._console = console.current
        self._cell = console.current.cell
        self._drawn: dict[str, str] | None = None
        self._due = 0.0

    @property
    def is_in_this_cell(self) -> bool:
        """Whether the cell that runs has the board."""
        return self._console.updates_displays and self._cell is not None and self._cell == console.current.cell

    def refresh(self) -> None:
        """Draws the trials, if that is due."""
        began = time.monotonic()
        if began < self._due or not self._console.updates_displays:
            return
        self._draw(draw(self.facts, self._rows, live=True), self.facts.headline)
        ended = time.monotonic()
        self._due = ended + max(_INTERVAL, _SHARE * (ended - began))

    def note_end(self, trial: Trial) -> None:
        """Says that a trial has ended, where the board is not redrawn."""
        if not self._console.updates_displays:
            words = "  ".join(part for part in line(self.facts, trial) if part)
            self._console.write("stdout", f"trial {words}\n")

    def finish(self) -> None:
        """Draws the trials for the last time."""
        if self._console.updates_displays:
            self._draw(draw(self.facts, self._rows, live=False), describe(self.facts))
        else:
            self._console.write("stdout", f"{self.facts.headline}\n")

    def _draw(self, html: str, words: str) -> None:
        bundle = {"text/html": html, "text/plain": words}
        if bundle != self._drawn:
            self._console.display(bundle, {}, self._id, update=self._drawn is not None)
            self._drawn = bundle


def describe(facts: Facts) -> str:
    """All trials as text."""
    metric = facts.metric
    names = _parameter_names(facts)
    head = ("trial", *names, "state", *([metric] if metric else []), "time", "note")
    rows = [head, *(_cells(facts, trial) for trial in facts.trials)]
    return "\n".join([facts.headline, *text.aligned(rows)])


def line(facts: Facts, trial: Trial) -> list[str]:
    """A trial as text, in a few parts."""
    metric = facts.metric
    value = [f"{metric} {found}"] if metric and (found := _value(trial, metric)) else []
    return [str(trial.number), trial.label, trial.state.value, *value, _time(trial), trial.why]


def _cells(facts: Facts, trial: Trial) -> list[str]:
    metric = facts.metric
    parameters = [shown(trial.parameters[name]) if name in trial.parameters else "" for name in _parameter_names(facts)]
    value = [_value(trial, metric)] if metric else []
    return [str(trial.number), *parameters, trial.state.value, *value, _time(trial), text.shortened(trial.why, 80)]


def _value(trial: Trial, metric: str) -> str:
    if trial.state is State.RUNNING and trial.running_job is not None:
        job = trial.running_job
        last = progress.metric(job, metric, _SPARK).last if metric in job.charts.names else None
        return "" if last is None else text.value(last.mean)
    found = trial.measured.get(metric)
    return "" if found is None else text.value(found.last)


def _time(trial: Trial) -> str:
    if trial.state is State.RUNNING and trial.running_job is not None:
        return headline(trial.running_job).seconds
    return text.duration(trial.seconds) if trial.seconds else ""


def _parameter_names(facts: Facts) -> list[str]:
    return list(dict.fromkeys(name for trial in facts.trials for name in trial.parameters))


def draw(facts: Facts, rows: dict[int, list[str]], *, live: bool) -> str:
    """All trials as HTML.

    Args:
        facts: The trials.
        rows: The rows of trials that have ended, which are drawn once.
        live: Whether they are redrawn soon, so that there is no room for all of many.
    """
    metric, names = facts.metric, _parameter_names(facts)
    best = facts.best
    head = ["trial", *names[:_MOST_PARAMETERS], *(["…"] if len(names) > _MOST_PARAMETERS else [])]
    head += ["state", *([metric, "curve"] if metric else []), "time", "note"]
    chosen, left = _chosen(facts.trials, live=live)
    drawn = [_row(facts, trial, names, rows, is_best=trial is best) for trial in chosen]
    shown_rows = pictures.table(drawn[:_MOST_OPEN], head)
    if len(drawn) > _MOST_OPEN:
        rest = pictures.table(drawn[_MOST_OPEN:], head)
        shown_rows += element("details", element("summary", f"{len(drawn) - _MOST_OPEN} more trials") + rest)
    return pictures.picture(facts.headline, [left] if left else [], div(shown_rows, "overflow:auto"))


def _chosen(trials: Sequence[Trial], *, live: bool) -> tuple[Sequence[Trial], str]:
    """The trials to draw, and a line about the others."""
    if not live or len(trials) <= _MOST_LIVE:
        return trials, ""
    running = [trial for trial in trials if trial.state is State.RUNNING]
    others = [trial for trial in trials if trial.state.ended][-max(0, _MOST_LIVE - len(running)) :]
    chosen = {trial.number for trial in (*running, *others)}
    found = [trial for trial in trials if trial.number in chosen][:_MOST_LIVE]
    return found, f"{len(found)} of the trials are shown while they run; at the end, all of them are"


def _row(facts: Facts, trial: Trial, names: Sequence[str], rows: dict[int, list[str]], *, is_best: bool) -> list[str]:
    metric = facts.metric
    found = rows.get(trial.number)
    if found is None or not trial.state.ended:
        parameters = [_cell(trial.parameters, name) for name in names[:_MOST_PARAMETERS]]
        if len(names) > _MOST_PARAMETERS:
            parameters.append(element("span", "…", title=trial.label))
        found = [element("b", str(trial.number)) + _open(trial), *parameters, _state(trial)]
        found += [pictures.text(_value(trial, metric)), _curve(trial, metric)] if metric else []
        found += [_time(trial), pictures.text(trial.why, 120)]
        if trial.state.ended and len(trial.parameters) == len(names):
            rows[trial.number] = found
    if is_best:
        found = list(found)
        found[0] = f"{found[0]} {element('span', 'best', _BEST)}"
    return found


_BEST = f"background-color:{AMBER};color:{pictures.INK[AMBER]};padding:0 0.4em;border-radius:3px;font-weight:bold"


def _open(trial: Trial) -> str:
    """A button that opens the trial's panel in JupyterLab."""
    if not trial.job_id:
        return ""
    return lab_button("na-lab-open", "notebook-accel:open-job", f"Open the panel of trial {trial.number}", trial.job_id)


def _cell(parameters: dict[str, Any], name: str) -> str:
    return pictures.text(shown(parameters[name])) if name in parameters else ""


def _state(trial: Trial) -> str:
    """Its state, with a bar that has its place in all rows."""
    words = badge(trial.state.value, RED) if trial.state is State.FAILED else pictures.text(trial.state.value)
    if trial.state is State.RUNNING and trial.running_job is not None:
        found = progress.overview(trial.running_job)
        done = headline(trial.running_job, found)
        words = " · ".join(part for part in (pictures.text(done.status), done.done, done.left) if part)
        bar = progress_bar(found.done, BLUE, "0.4em")
    else:
        bar = progress_bar(1.0, GREEN, "0.4em") if trial.state is State.DONE else progress_bar(None, height="0.4em")
    return div(words + bar, "min-width:9em;white-space:nowrap")


def _curve(trial: Trial, metric: str) -> str:
    job: Job | None = trial.running_job
    if job is None or metric not in job.charts.names:
        return ""
    return element("span", metric_spark(progress.metric(job, metric, _SPARK)), "font-family:monospace;white-space:pre")
